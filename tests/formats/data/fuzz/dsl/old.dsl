// Network of an old GeNIe
net Old
{
 HEADER =
  {
   ID = Old;
   NAME = "An old network";
   COMMENT = "licence: none";
  };
 CREATION = { CREATOR = "Somebody"; CREATED = ""; MODIFIED = ""; };
 NUMSAMPLES = 1000;
 SCREEN = { POSITION = { CENTER_X = 0; CENTER_Y = 0; WIDTH = 76; HEIGHT = 36; }; COLOR = 16250597; };
 USER_PROPERTIES = { };
 DOCUMENTATION = { };

 node P1
  {
   TYPE = CPT;
   HEADER = { ID = P1; NAME = "The first \"parent\""; COMMENT = ""; };
   SCREEN = { POSITION = { CENTER_X = 388; CENTER_Y = -431; WIDTH = 68; HEIGHT = 42; }; FONT = 1; };
   USER_PROPERTIES = { source = "a book"; };
   DOCUMENTATION = { };
   DOCUMENTATION = { };
   PARENTS = ();
   DEFINITION =
    {
     NAMESTATES = (True, False);
     PROBABILITIES = (0.66000000, /* not (0.7) */ 0.34000000);
    };
   EXTRA_DEFINITION = { DIAGNOSIS_TYPE = AUXILIARY; RANKED = FALSE; FAULT_STATES = (0, 0); FAULT_NAMES = ("", ""); };
  };

 node C1
  {
   TYPE = NOISY_MAX;
   PARENTS = (P1, P2);
   DEFINITION =
    {
     NAMESTATES = (True, False);
     STRENGTHS = (0, 1, 1, 0);
     PROBABILITIES = (0.75, 0.25, 0.0, 1.0, 0.5,
     0.5, 0.0, 2.0, 0.25, 0.75);
    };
  };

 submodel Below
  {
   HEADER = { ID = Below; NAME = "Below"; };
   node P2
    {
     TYPE = CPT;
     PARENTS = (P1);
     DEFINITION = { NAMESTATES = (yes, no); PROBABILITIES = (0.1, 0.9, 0.2, 0.8); };
    };
  };

 node T
  {
   TYPE = TRUTHTABLE;
   PARENTS = (C1, P2);
   DEFINITION = { NAMESTATES = (a, b, c); RESULTINGSTATES = (a, b, c, c); };
  };
};
