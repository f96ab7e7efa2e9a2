package manpage

// Statuses are the exit statuses of nexus and nexus-rpc.
func Statuses() Section {
	return Section{Title: "EXIT STATUS", Entries: []Entry{
		{"0", "Done."},
		{"1", "The server refused, the turn was cancelled or had no answer, there is no usable key, or the output could not be written. The reason is on stderr."},
		{"2", "The command line is wrong."},
		{"3", "There is no server, or another service is on its port."},
		{"78", "A program of a later version has used the home, or written the backup."},
		{"141", "stdout lost its reader."},
	}}
}

// Variables are those of the environment that all clients read.
func Variables() Section {
	return Section{Title: "ENVIRONMENT", Entries: []Entry{
		{"NEXUS_HOME", "The home directory of nexus, if --home names none; otherwise ~/.nexus3."},
		{"NEXUS_PORT", "The port of the server, if --port names none."},
		{"NEXUS_SERVER", "The addresses of the server, if neither --server nor --port names one."},
		{"NEXUS_CA", "The file of the authorities, if --ca names none."},
		{"NEXUS3_API_KEY", "The key for the server, if --api-key gives none; otherwise that of the key file in the home."},
		{"NO_COLOR", "If it is set, nothing is coloured."},
	}}
}

// Files are those of a home that a person meets.
func Files() Section {
	return Section{Title: "FILES", About: "In the home, ~/.nexus3:", Entries: []Entry{
		{"config.json", "Providers, models, profiles and settings. nexus init writes one with comments, nexus config check checks it."},
		{"NEXUS.md", "The personal system prompt."},
		{"sessions/", "The conversations of named agents."},
		{"server.key, server-PORT.key", "The key of the server, while it runs."},
		{"logs/", "The logs of servers that a verb started."},
	}}
}

// SeeAlso names other pages, and where the specification is.
func SeeAlso(pages string) Section {
	return Section{Title: "SEE ALSO", About: pages + "\n\nThe pages in share/doc/nexus, of which README.md is the first and cmd/OPERATIONS.md is about these programs."}
}
