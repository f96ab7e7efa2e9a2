package supervisor

// Policy decides on restarts. The zero value is the default of SPEC §5.
type Policy struct{}
