// Package identity makes and reads what the machines of a cluster prove themselves to each other by.
//
//	made, err := identity.Init("farm", identity.Cluster{Name: "farm", Machines: []identity.Address{{"a", "10.0.0.1:8766"}, {"b", "10.0.0.2:8766"}}})
//	spec, err := identity.Read("farm/a") // on machine a, which farm/a was copied to
//	tls, err := identity.TLS("farm/a", spec.Machine)
//
// An authority of the cluster's own signs a certificate for each machine. Who has one belongs to the cluster: it is not compared with the name
// that a machine says. Files have mode 0600, directories 0700. A private key that other users can read is refused.
package identity
