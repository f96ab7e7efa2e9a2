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

// settling is how long a file must look the same before it is believed to be: the clocks of file systems stand still for milliseconds.
const settling = time.Second

// seed is that of all sums, which are of one process.
var seed = maphash.MakeSeed()

// shipped is what is known of a file that the others have.
type shipped struct {
	id      safefile.FileID
	size    int64
	at      time.Time // when it was changed last, by the file system's clock; zero for a part of it
	seen    time.Time // when it looked like this for the first time
	settled bool      // it was compared when it had looked so for settling
	// sums are those of its blocks, the last one perhaps of a part.
	sums []uint64
}

// found is what is found now of a file of which the others have s.
func (s shipped) found(info fs.FileInfo) shipped {
	now := shipped{id: safefile.Identify(info), size: info.Size(), at: info.ModTime(), seen: time.Now()}
	if s.id == now.id && s.size == now.size && s.at.Equal(now.at) {
		now.seen, now.settled = s.seen, time.Since(s.seen) > settling
	}
	return now
}

// sums adds to those of earlier blocks those of what follows them.
func sums(earlier []uint64, data []byte) []uint64 {
	for block := range slices.Chunk(data, blockBytes) {
		earlier = append(earlier, maphash.Bytes(seed, block))
	}
	return earlier
}

// ends reports whether the last block of what the others have is still in a file. It reads into block.
func (s shipped) ends(f *os.File, block []byte) (bool, error) {
	if s.size == 0 {
		return true, nil
	}
	last := len(s.sums) - 1
	block = block[:s.size-int64(last)*blockBytes]
	if _, err := f.ReadAt(block, int64(last)*blockBytes); err != nil && err != io.EOF {
		return false, err
	}
	return maphash.Bytes(seed, block) == s.sums[last], nil
}
