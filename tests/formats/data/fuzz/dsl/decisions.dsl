net Venture
{
  HEADER = { ID = Venture; NAME = "A venture"; };
  node Success
  {
    TYPE = CPT;
    PARENTS = ();
    DEFINITION = { NAMESTATES = (Success, Failure); PROBABILITIES = (0.2, 0.8); };
  };
  node Forecast
  {
    TYPE = CPT;
    PARENTS = (Success);
    DEFINITION =
    {
      NAMESTATES = (Good, Moderate, Poor);
      PROBABILITIES = (0.4, 0.4, 0.2, 0.1, 0.3, 0.6);
    };
  };
  node Invest
  {
    TYPE = LIST;
    HEADER = { ID = Invest; NAME = "Invest?"; };
    PARENTS = (Forecast);
    DEFINITION = { NAMECHOICES = (Invest, DoNotInvest); };
  };
  node Gain
  {
    TYPE = TABLE;
    HEADER = { ID = Gain; NAME = "Financial gain"; COMMENT = "in dollars"; };
    SCREEN = { POSITION = { CENTER_X = 50; CENTER_Y = 200; WIDTH = 76; HEIGHT = 36; }; };
    PARENTS = (Invest, Success);
    DEFINITION = { UTILITIES = (10000, -5000, 500, 500); };
  };
  node Fee
  {
    TYPE = TABLE;
    PARENTS = (Invest);
    DEFINITION = { UTILITIES = (-1, 0); };
  };
  node Total
  {
    TYPE = MAU;
    PARENTS = (Gain, Fee);
    DEFINITION = { WEIGHTS = (1, 100); };
  };
};
