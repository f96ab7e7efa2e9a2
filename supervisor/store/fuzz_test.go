package store_test

import (
	"bytes"
	"testing"

	"nexus.internal/supervisor/store"
)

const (
	digest   = `"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}` + "\n"
	accepted = `{"accepted":1,"request_id":"1",` + digest
	ended    = `{"ended":2,"of":1,"outcome":"crashed","usage":{"input_tokens":1,"output_tokens":2},"incarnation":1,` +
		`"error":{"message":"m","is":["aborted"],"kind":"crash","exit":{"code":-1,"signal":"killed"}},"text":"€"}` + "\n"
)

func split(data []byte) [][]byte {
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

// stable checks that a snapshot says what it was made of.
func stable(t *testing.T, again []byte, done, waiting int) {
	t.Helper()
	third, done2, waiting2 := store.Again(split(again))
	if done2 != done || waiting2 != waiting {
		t.Fatalf("%d and %d requests came back as %d and %d", done, waiting, done2, waiting2)
	}
	if !bytes.Equal(third, again) {
		t.Errorf("written anew %q, again %q", again, third)
	}
}

// What is read and written anew says the same when it is read again, in whatever order the
// lines are, and nothing has two outcomes.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{"", accepted, accepted + ended, ended + accepted, accepted + ended + ended + accepted, accepted + "{}\n" + ended[:50], `{"ended":1,"of":18446744073709551615}` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again, done, waiting := store.Again(split(data))
		stable(t, again, done, waiting)
	})
}

// So does what an earlier version wrote.
func FuzzEarlier(f *testing.F) {
	head := `{"type":"outcomes","version":1}` + "\n"
	accepted := `{"type":"accepted","request_id":"1",` + digest
	ended := `{"type":"ended","request_id":"1",` + ended[len(`{"ended":2,"of":1,`):]
	for _, s := range []string{
		"", head, head + accepted, head + accepted + ended, head + accepted + ended + accepted + ended, head + ended + accepted, head + accepted + ended[:50],
		head + accepted + "   \n" + accepted, head + accepted + " \"x\n" + ended, " \n" + head, `{"type":"outcomes","version":2}` + "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again, good, err := store.Earlier(data)
		if err != nil {
			return
		}
		if good > len(data) || good > 0 && data[good-1] != '\n' {
			t.Fatalf("%d of %d bytes are good", good, len(data))
		}
		_, done, waiting := store.Again(split(again))
		stable(t, again, done, waiting)
	})
}
