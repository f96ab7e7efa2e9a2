package proctree

import "time"

// CoarseTimer is how late waits for a time may end where timers are coarse (SPEC §5.2).
const CoarseTimer = time.Millisecond
