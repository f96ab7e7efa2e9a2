package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// held is which objects the messages of an agent name, as they follow one another. The zero value is that of none.
type held struct {
	whole, coming map[string][]change // by path: those of the files that are whole, and of those that are being shipped whole
	writing       bool                // messages are of coming
	named         map[string]bool     // all that may be there, those that were put and never named among them
}

// take takes the next message.
func (h *held) take(m message) {
	if m.Begins || m.Number == 1 {
		h.coming, h.writing = nil, m.Begins
	}
	files := &h.whole
	if h.writing {
		files = &h.coming
	}
	if *files == nil {
		*files = map[string][]change{}
	}
	for _, c := range m.Changes {
		if c.Gone || c.At == 0 && !c.Patch {
			delete(*files, c.Path)
		}
		if c.Object != "" {
			(*files)[c.Path] = append((*files)[c.Path], c)
			h.put(c.Object)
		}
	}
	if m.Complete {
		h.whole, h.coming, h.writing = h.coming, nil, false
	}
}

// put notes that an object may be there.
func (h *held) put(name string) {
	if h.named == nil {
		h.named = map[string]bool{}
	}
	h.named[name] = true
}

// at is the object that the messages name for what stands at a place of a whole file.
func (h *held) at(path string, at int64) (change, bool) {
	all := h.whole[path]
	i := slices.IndexFunc(all, func(c change) bool { return c.At == at })
	if i < 0 {
		return change{}, false
	}
	return all[i], true
}

// next is where the first object of a whole file begins behind a place; ok is false if there is none.
func (h *held) next(path string, at int64) (next int64, ok bool) {
	for _, c := range h.whole[path] {
		if c.At > at && (!ok || c.At < next) {
			next, ok = c.At, true
		}
	}
	return next, ok
}

// needless are the objects that may be there, and of which no whole file has something.
func (h *held) needless() []string {
	needed := map[string]bool{}
	for _, all := range h.whole {
		for _, c := range all {
			needed[c.Object] = true
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(h.named)), func(name string) bool { return needed[name] })
}

// knowObjects reads which objects the messages before Take name, unless that is known. What is damaged among them says nothing. mu is held.
func (m *Mirror) knowObjects(ctx context.Context) error {
	if !m.names {
		return nil
	}
	var h held
	err := m.read(ctx, func(head message, _ [][]byte) error {
		h.take(head)
		return nil
	})
	if err != nil && !errors.Is(err, ErrUnreadable) {
		return err
	}
	m.names, m.held = false, h
	m.held.take(message{Number: 1}) // Take's
	return nil
}

// clean removes the objects that are needed no more. Those that it cannot remove now are the next time. mu is held.
func (m *Mirror) clean(ctx context.Context) {
	for _, name := range m.held.needless() {
		if m.s.remove(ctx, name) != nil {
			return
		}
		delete(m.held.named, name)
	}
}
