package memory

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// statisticMatch is -m statistic --mode random.
type statisticMatch struct {
	random bool
	set    bool
	// share is the probability times statisticOne, rounded, which is all that
	// the kernel knows of it.
	share    uint32
	inverted bool
}

// statisticOne stands for certainty: xt_statistic compares with 31 random bits.
const statisticOne = 1 << 31

func (m *statisticMatch) option(p *parser, name string) (bool, error) {
	if name != "--mode" && name != "--probability" {
		return false, nil
	}
	value, err := p.value(name)
	if err != nil {
		return true, err
	}
	if name == "--mode" {
		if value != "random" || m.random {
			return true, refusef("Bad mode %q", value)
		}
		m.random = true
		return true, nil
	}
	probability, err := strconv.ParseFloat(value, 64)
	if err != nil || probability < 0 || probability > 1 || m.set {
		return true, refusef("statistic: bad value %q for option %q, or out of range (0.0-1.0)", value, name)
	}
	m.set, m.share, m.inverted = true, uint32(math.Round(probability*statisticOne)), p.invert()
	return true, nil
}

func (m *statisticMatch) complete(*rule) error {
	if !m.random {
		return refusef(`statistic: option "--mode" must be specified`)
	}
	if !m.set {
		return refusef("--probability must be specified when using random mode")
	}
	return nil
}

func (m *statisticMatch) holds(w *walk) bool {
	return w.choose(float64(m.share)/statisticOne) != m.inverted
}

func (m *statisticMatch) print(b *strings.Builder) {
	write(b, false, "-m statistic --mode random")
	write(b, m.inverted, "--probability", fmt.Sprintf("%.11f", float64(m.share)/statisticOne))
}
