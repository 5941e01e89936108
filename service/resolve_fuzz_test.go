package service

import (
	"math/rand/v2"
	"testing"
)

func FuzzResolve(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for size := range 8 {
		seed := make([]byte, 64*size)
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := choices(data)
		newScenario(&c).check(t, rand.New(rand.NewPCG(uint64(len(data)), 0)))
	})
}
