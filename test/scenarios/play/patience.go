package play

import "time"

// How long things may take. Waits that end early cost nothing when all is well, and
// are long because machines of tests are slow and shared; how fast a proxy is is
// not the question here.
var (
	// answerPatience is how long a client waits that will be answered or refused.
	answerPatience = 5 * time.Second
	// silencePatience is how long silence is waited for. A false silence can only
	// be reported where silence is expected.
	silencePatience = 500 * time.Millisecond
	// holdMax bounds the time until a question has the wanted answers. The list of
	// scenarios says 2 s; the rest is for slow machines.
	holdMax = 10 * time.Second
	// settleMax bounds the wait for a change, and sentinelPatience that for one
	// answer of the sentinel.
	settleMax        = 20 * time.Second
	sentinelPatience = 200 * time.Millisecond
	// settleRest is what is added for changes that took another way to the proxy
	// than the sentinel's.
	settleRest = 40 * time.Millisecond
	// echoMax is how long an echo may take. A connection that is dead shows nothing
	// but silence.
	echoMax = 2 * time.Second
)

// SlowDown makes all waits longer, for a machine that is emulated. It is called
// before anything is played.
func SlowDown(factor int) {
	for _, wait := range []*time.Duration{
		&answerPatience, &silencePatience, &holdMax, &settleMax, &sentinelPatience, &settleRest, &echoMax,
	} {
		*wait *= time.Duration(factor)
	}
}
