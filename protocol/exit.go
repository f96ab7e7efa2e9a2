package protocol

// The exit statuses of a child that did not start because of its session, whatever
// its parent would change (SPEC §3.9). Their numbers are those of sysexits(3).
const (
	ExitSessionDamaged = 65 // EX_DATAERR: the session cannot be read
	ExitSessionInUse   = 75 // EX_TEMPFAIL: another process has it open
)
