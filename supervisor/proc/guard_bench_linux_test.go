package proc_test

import (
	"bufio"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"nexus.internal/supervisor/proc"
)

// BenchmarkServerKilled is from the server's SIGKILL until nothing is left of
// three processes with all that they started.
func BenchmarkServerKilled(b *testing.B) {
	for _, u := range users() {
		for name, how := range map[string]string{"escapes": escapes, "storms": everyKind} {
			b.Run(name+"/"+u.name, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					b.StopTimer()
					cmd, _, _, gone := startServer(b, u, how)
					b.StartTimer()
					began := time.Now()
					cmd.Process.Kill()
					if err := gone(patience); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(began))
				}
				report(b, took)
			})
		}
	}
}

// BenchmarkDeathNoticed is from SIGKILL to Done, with and without a guard.
func BenchmarkDeathNoticed(b *testing.B) {
	for _, guarded := range []bool{false, true} {
		b.Run(fmt.Sprintf("guard=%v", guarded), func(b *testing.B) {
			s := proc.Spec{Env: role("deaf")}
			if guarded {
				s.Guard = newGuard(b, nil)
			}
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				p := start(s)
				bufio.NewReader(p.Stdout()).ReadString('\n')
				b.StartTimer()
				began := time.Now()
				syscall.Kill(p.PID(), syscall.SIGKILL)
				<-p.Done()
				took = append(took, time.Since(began))
				p.Discard()
			}
			report(b, took)
		})
	}
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
}
