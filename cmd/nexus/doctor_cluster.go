package main

import (
	"context"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor/cluster/identity"
)

// cluster looks at the machines that the home's server is one of, as it knows them; at nothing where it is in no cluster.
func (d *doctor) cluster(ctx context.Context, c *client.Client) {
	all, err := client.Do(ctx, c, "", api.ListNodes, api.None{})
	switch {
	case err != nil:
		d.add("cluster", isWarn, "see its log, and nexus cluster status", "the server does not say which machines it knows: %v", err)
		return
	case all.Cluster == nil:
		return
	}
	members, found := 0, len(d.findings)
	version := ""
	for _, n := range all.Nodes {
		if n.Node == all.Node {
			version = n.Version
		}
	}
	for _, n := range all.Nodes {
		if n.State != "left" && n.State != "removed" {
			members++
		}
		switch {
		case n.State == "removed":
			d.add("cluster", isWarn, "have a machine of that name join (nexus cluster init): it may have an empty home",
				"%s: agents wait for the machine %s, which was removed, as no other one shares their directories", *all.Cluster, n.Node)
		case n.State == "lost" && n.LastHeard == nil:
			d.add("cluster", isWarn, "see to that machine and its network, and start its server again",
				"%s: the machine %s, which has agents, is lost, and was not heard of since this server started", *all.Cluster, n.Node)
		case n.State == "lost":
			d.add("cluster", isWarn, "see to that machine and its network, and start its server again",
				"%s: the machine %s is lost, and was heard of last at %s", *all.Cluster, n.Node, *n.LastHeard)
		case n.State != "left" && n.Version != version:
			d.add("cluster", isWarn, "give all machines one version, one after the other",
				"%s: the machine %s has version %s, and %s has %s", *all.Cluster, n.Node, n.Version, all.Node, version)
		}
	}
	if members < 3 {
		d.add("cluster", isWarn, "add machines until there are three: nexus cluster init, and nexus serve --cluster-files",
			"%s has %s: with fewer than three, none may fail", *all.Cluster, strings.Join(nodeNames(all), ", "))
	}
	if len(d.findings) == found {
		d.add("cluster", isOK, "", "%s: %s, and this is %s", *all.Cluster, strings.Join(nodeNames(all), ", "), all.Node)
	}
}

// clusterFiles looks at the files by which a machine of a cluster proves itself, if there are any: others must neither know them nor have put them there.
func (d *doctor) clusterFiles(o clusterOptions) {
	if o.files != "" {
		said, err := identity.Read(o.files)
		if err == nil {
			_, err = identity.TLS(o.files, said.Machine)
		}
		if err != nil {
			d.add("cluster", isFail, "do what it says, or make the files anew by nexus cluster init", "%v", err)
		} else {
			d.add("cluster", isOK, "", "%s is of the machine %s of %s, and nobody else can know or change it", o.files, said.Machine, said.Cluster)
		}
	}
	if o.credentials != "" {
		if err := safefile.CheckSecret(o.credentials); err != nil {
			d.add("cluster", isFail, "do what it says", "%v", err)
		} else {
			d.add("cluster", isOK, "", "nobody else can know or change %s", o.credentials)
		}
	}
}

// nodeNames are the machines with what they are, as in "a (up)".
func nodeNames(all api.ListNodesResult) (names []string) {
	for _, n := range all.Nodes {
		names = append(names, n.Node+" ("+n.State+")")
	}
	return names
}
