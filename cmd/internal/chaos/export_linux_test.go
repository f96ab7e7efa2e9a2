package chaos

// ProcessesWith is what finds the processes that are left.
var ProcessesWith = processesWith

// TagsOf tells which numbers are of a server's.
func TagsOf(server int, home string) (has func(uint64) bool, ok bool) {
	t, ok := tagOf(server, home)
	return t.Has, ok
}
