"""Everything that touches a Spark session itself: starting one, its SQL parser, its errors. Driver."""
