package chaos

var (
	// ProcessesWith is what finds the processes that are left.
	ProcessesWith = processesWith
	// Number is what a process bears.
	Number = number
)

// TagsOf tells which numbers are of a server's.
func TagsOf(server int, home string) (has func(uint64) bool, ok bool) {
	t, ok := tagsOf(server, home)
	return t.has, ok
}
