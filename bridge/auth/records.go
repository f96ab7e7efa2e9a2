package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/strict"
)

// record is a key in a file, without the key.
type record struct {
	Verifier verifier  `json:"sha256"`
	Scope    Scope     `json:"scope"`
	Name     string    `json:"name,omitzero"`
	AgentID  string    `json:"agent_id,omitzero"`
	MayGrant bool      `json:"may_grant,omitzero"`
	Created  time.Time `json:"created_at"`
	Expires  time.Time `json:"expires_at,omitzero"`

	later jsontext.Value // the whole record, if it has a later format: it is no key here, and stays; nil otherwise
}

// MarshalJSON has a record of a later format written as it was read.
func (r record) MarshalJSON() ([]byte, error) {
	if r.later != nil {
		return r.later, nil
	}
	type known record
	return json.Marshal(known(r))
}

// UnmarshalJSON reads a record, also one of a later format.
func (r *record) UnmarshalJSON(text []byte) error {
	if format.Key.Check(text) != nil {
		*r = record{later: slices.Clone(text)}
		return nil
	}
	type known record
	return json.Unmarshal(text, (*known)(r), json.RejectUnknownMembers(true))
}

// records are the keys in a file.
type records struct {
	Keys []record `json:"keys"`
}

// save writes the keys and then takes them for its own. mu is held.
func (k *Keyring) save(keys []*entry) error {
	if err := k.writeRecords(recordsOf(keys)); err != nil {
		return err
	}
	k.scoped, k.unsaved = keys, nil
	return nil
}

// writeRecords writes scoped keys into their file. mu is held.
func (k *Keyring) writeRecords(keys []record) error {
	text, err := json.Marshal(records{keys}, jsontext.WithIndent("  "))
	if err == nil {
		err = replace(k.records, string(text)+"\n")
	}
	if err != nil {
		return fmt.Errorf("write the scoped keys %s: %w", k.records, err)
	}
	return nil
}

func recordsOf(keys []*entry) []record {
	list := []record{}
	for _, h := range keys {
		list = append(list, record{Verifier: h.verifier, Scope: h.Scope, Name: h.Name, AgentID: h.AgentID, MayGrant: h.MayGrant, Created: h.Created.UTC(), Expires: h.Expires.UTC()})
	}
	return list
}

// grant is what a record says of its key.
func (r record) grant() Grant {
	return Grant{Scope: r.Scope, Name: r.Name, AgentID: r.AgentID, MayGrant: r.MayGrant, Created: r.Created, Expires: r.Expires}
}

// decodeRecords reads keys; full ones are among them only where a cluster keeps them.
func decodeRecords(text []byte, full bool) ([]record, error) {
	var file records
	if err := strict.Valid(text); err != nil {
		return nil, err
	}
	if err := format.Keys.Check(text); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &file, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	for i, r := range file.Keys {
		if full && r.later != nil {
			continue
		}
		scoped := r.Scope == ScopeRead || r.Scope == ScopeAgent && r.AgentID != ""
		if len(r.Verifier) != 64 || !scoped && (!full || r.Scope != ScopeFull) || r.MayGrant && r.Scope != ScopeAgent {
			return nil, fmt.Errorf("keys[%d] is no scoped key", i)
		}
	}
	return file.Keys, nil
}

func (k *Keyring) load() error {
	text, err := readOwn(k.records, ownersAlone, MaxRecords)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := decodeRecords(text, false)
	if err != nil {
		return err
	}
	for _, r := range list {
		k.scoped = append(k.scoped, newEntry(r.grant(), Key{}, r.Verifier))
	}
	return nil
}
