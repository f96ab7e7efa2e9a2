// Package web is the tool that fetches a page of the network.
//
//	t := web.New(web.Options{Images: images})
//	result, err := t.Run(ctx, tool.Call{Input: jsontext.Value(`{"url":"https://go.dev/"}`), Permit: permit})
//
// A page goes to no machine but the one that its URL names: each address is checked when it is
// connected to (child/egress), and so is each redirect, which leads to another host only if
// nobody would have to be asked about that. No credentials, cookies and referrers are sent, no
// proxy is used, and time and size are bounded. HTML becomes plain text with its headings,
// lists and links. The tool is safe for concurrent use and keeps no connection between
// calls. The contract is child/AGENT.md §4.4.
package web
