"""The backend "indexed": junction trees by precomputed index tables (Gottoli and Pettenuzzo, Verona, 2014)."""
