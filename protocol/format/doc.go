// Package format has the rule by which programs of several versions keep and exchange values: the machines of a cluster are upgraded one at a time.
//
//	var c claim
//	err := format.Claim.Decode(text, &c)   // a *LaterError if a later program wrote it
//	err = later.Note(err)                  // told once, and in later.Warnings from now on
//
// A value that is a JSON object says its format by the member "format", a whole number. Without that member, and if it is no object, it has format 1. A new
// member that earlier programs may ignore needs no new format. Any other change does: the kind's Reads grows, the value says so, and what was recorded of the
// earlier format in fixtures/cluster stays and is read. A program leaves a value of a later format as it is, and acts as if the value said what is safe.
// See supervisor/SUPERVISION.md, §5.10.
package format
