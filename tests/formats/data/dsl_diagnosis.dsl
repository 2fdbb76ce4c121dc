net Car
{
 HEADER = 
  {
   ID = Car;
   NAME = "A car that does not start";
  };
 CREATION = 
  {
  };
 NUMSAMPLES = 1000;
 SCREEN = 
  {
   POSITION = 
    {
     CENTER_X = 0;
     CENTER_Y = 0;
     WIDTH = 76;
     HEIGHT = 36;
    };
   COLOR = 16250597;
   SELCOLOR = 12303291;
   FONT = 1;
   FONTCOLOR = 0;
   BORDERTHICKNESS = 3;
   BORDERCOLOR = 12255232;
  };
 WINDOWPOSITION = 
  {
   CENTER_X = 0;
   CENTER_Y = 0;
   WIDTH = 0;
   HEIGHT = 0;
  };
 BKCOLOR = 16777215;
 USER_PROPERTIES = 
  {
  };
 DOCUMENTATION = 
  {
  };
 SHOWAS = 3;

 node Battery
  {
   TYPE = CPT;
   HEADER = 
    {
     ID = Battery;
     NAME = "Battery";
    };
   PARENTS = ();
   DEFINITION = 
    {
     NAMESTATES = (ok, flat);
     PROBABILITIES = (0.96000000, 0.04000000);
    };
   EXTRA_DEFINITION = 
    {
     DIAGNOSIS_TYPE = TARGET;
     RANKED = TRUE;
     MANDATORY = FALSE;
     SETASDEFAULT = FALSE;
     SHOWAS = 4;
     FAULT_STATES = (0, 1);
     FAULT_NAMES = ("", "flat battery");
     FAULT_LABELS = ("", "");
     DEFAULT_STATE = 0;
     DOCUMENTATION = 
      {
      };
     DOCUMENTATION = 
      {
       manual = "http://www.example.org/car; {page 7}";
      };
     STATECOMMENTS = ("", "");
     STATEREPAIRINFO = ("", "");
     QUESTION = "Is the battery charged?";
    };
  };

 submodel Electrics
  {
   HEADER = 
    {
     ID = Electrics;
     NAME = "Electrics";
    };

   node Starter
    {
     TYPE = CPT;
     PARENTS = ();
     DEFINITION = 
      {
       NAMESTATES = (ok, broken);
       PROBABILITIES = (0.99000000, 0.01000000);
      };
     OBSERVATION_COST = 
      {
       node Battery
        {
         COSTS = (2.50000000);
        };
      };
    };
   OBSERVATION_COST = 
    {
    };
  };

 node Engine
  {
   TYPE = CPT;
   PARENTS = (Battery, Starter);
   DEFINITION = 
    {
     NAMESTATES = (turns, silent);
     PROBABILITIES = (0.98000000, 0.02000000, 0.05000000, 0.95000000, 
     0.10000000, 0.90000000, 0.01000000, 0.99000000);
    };
  };

 node Lights
  {
   TYPE = CPT;
   PARENTS = (Battery);
   DEFINITION = 
    {
     NAMESTATES = (bright, dim);
     PROBABILITIES = (0.97000000, 0.03000000, 0.20000000, 0.80000000);
    };
  };
 OBSERVATION_COST = 
  {

   node Battery
    {
     PARENTS = ();
     COSTS = (12.00000000);
    };

   node Starter
    {
     PARENTS = (Battery);
     COSTS = (30.00000000, 5.00000000);
    };

   node Engine
    {
     PARENTS = ();
     COSTS = (0.00000000);
    };

   node Lights
    {
     PARENTS = ();
     COSTS = (0.00000000);
    };
  };
};
