// Package cli is the command line that nexus and nexus-rpc share: one verb for
// each thing a person asks of a server.
//
//	app := cli.New(cli.Options{Name: "nexus-rpc", Version: version, Environ: os.Environ(), …})
//	os.Exit(app.Run(ctx, os.Args[1:]))
//
// Exit statuses (SPEC §2.2): 0 done, 1 the server said no, 2 usage, 3 no
// server, 78 the home is of a later format. What was asked for goes to stdout, for people or as values (--output);
// everything else goes to stderr.
//
// list, create and load start a server if none runs, and say so on stderr. The
// server of a home is found by the home's lock. A key is sent only to a server that
// has proved that it has it. An App is for one command line and one
// goroutine.
package cli
