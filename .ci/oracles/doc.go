// Package oracles holds what the child makes of the providers' wires against
// what the vendors' own SDKs make of them (make oracles): the streams, requests
// and lists in fixtures/providers and errors of every shape. It is a module of its
// own, so that the SDKs are no dependency of nexus. It needs the network once, for
// the modules; its go.mod takes the versions of nexus over by itself.
package oracles
