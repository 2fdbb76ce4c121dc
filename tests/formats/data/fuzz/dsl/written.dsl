net small_one
{
	HEADER =
	{
		ID = small_one;
		NAME = "A small one";
	};
	USER_PROPERTIES =
	{
		JTGPU_NETWORK = "small one";
		JTGPU_ORDER = "a x_ray c d";
	};

	node a
	{
		TYPE = CPT;
		HEADER =
		{
			ID = a;
			NAME = "the \"A\"";
		};
		SCREEN =
		{
			POSITION =
			{
				CENTER_X = 3;
				CENTER_Y = -4;
				WIDTH = 76;
				HEIGHT = 36;
			};
		};
		PARENTS = ();
		DEFINITION =
		{
			NAMESTATES = (x, y);
			PROBABILITIES = (0.25, 0.75);
		};
	};

	node c
	{
		TYPE = CPT;
		HEADER =
		{
			ID = c;
			NAME = "c";
		};
		PARENTS = ();
		DEFINITION =
		{
			NAMESTATES = (only);
			PROBABILITIES = (1);
		};
	};

	node x_ray
	{
		TYPE = CPT;
		HEADER =
		{
			ID = x_ray;
			NAME = "x-ray";
		};
		USER_PROPERTIES =
		{
			JTGPU_NAME = "x_ray=x-ray";
			JTGPU_STATE_0 = "State_9=<9";
			JTGPU_STATE_1 = "State_=";
			JTGPU_STATE_2 = "State_9_2=<9";
		};
		PARENTS = (a, c);
		DEFINITION =
		{
			NAMESTATES = (State_9, State_, State_9_2);
			PROBABILITIES = (0.1, 0.2, 0.7, 0.3333333333333333, 0.3333333333333333, 0.3333333333333333);
		};
	};

	node d
	{
		TYPE = CPT;
		HEADER =
		{
			ID = d;
			NAME = "d";
		};
		USER_PROPERTIES =
		{
			k = "v";
			JTGPU_NODE_1 = "w";
			JTGPU_ROWS = "exact";
		};
		PARENTS = (x_ray, a);
		DEFINITION =
		{
			NAMESTATES = (y, n);
			PROBABILITIES = (0.5, 0.5, 1, 0, 0.3000001, 0.7, 1e-300, 1, 0, 1, 0.125, 0.875);
		};
	};
};
