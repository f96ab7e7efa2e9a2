package mirror

import (
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"nexus.internal/protocol/safefile"
)

// blockBytes is how much of a file one sum is of.
const blockBytes = 16 << 10

// settled is how old the last change to a file must be for its time to tell whether there was another one since: the clocks
// of file systems stand still for milliseconds.
const settled = time.Second

// seed is that of all sums, which are of one process.
var seed = maphash.MakeSeed()

// shipped is what is known of a file that the others have.
type shipped struct {
	id     safefile.FileID
	size   int64
	at     time.Time // when it was changed last
	looked time.Time // when that was seen
	// sums are those of its blocks, the last one perhaps of a part.
	sums []uint64
}

// same reports whether a file is certainly as it was.
func (s shipped) same(info fs.FileInfo) bool {
	return s.id == safefile.Identify(info) && s.size == info.Size() && s.at.Equal(info.ModTime()) && s.looked.Sub(s.at) > settled
}

// sums adds to those of earlier blocks those of what follows them.
func sums(earlier []uint64, data []byte) []uint64 {
	for block := range slices.Chunk(data, blockBytes) {
		earlier = append(earlier, maphash.Bytes(seed, block))
	}
	return earlier
}

// ends reports whether the last block of what the others have is still in a file.
func (s shipped) ends(f *os.File) (bool, error) {
	if s.size == 0 {
		return true, nil
	}
	last := len(s.sums) - 1
	block := make([]byte, s.size-int64(last)*blockBytes)
	if _, err := f.ReadAt(block, int64(last)*blockBytes); err != nil && err != io.EOF {
		return false, err
	}
	return maphash.Bytes(seed, block) == s.sums[last], nil
}
