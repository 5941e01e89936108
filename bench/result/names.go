package result

// Names of steps and figures of a comparison that the page and the targets look for.
const (
	ColdStart = "cold start"
	Restart   = "restart"

	ToAnswers       = "start of the process to Services answer"
	ToChanges       = "start of the process to changes in force"
	AnswerP50       = "write to answer, p50"
	AnswerP99       = "write to answer, p99"
	PerMinute       = "processor time per minute"
	UserPerMinute   = "processor time per minute, user"
	SystemPerMinute = "processor time per minute, system"
	User            = "processor time, user"
	System          = "processor time, system"
	Resident        = "resident at the end"
	Attempted       = "connections attempted"
	Lost            = "connections lost"

	FleetPlain        = "start with plain lists"
	FleetStreamed     = "start with streamed lists"
	FleetChange       = "one endpoint replaced"
	FleetIdle         = "nothing changes"
	Received          = "received from the API server"
	ReceivedEach      = "received for each"
	ReceivedPerMinute = "to and from the API server, per minute"
	ServerTime        = "processor time of the API server"
)

// ChurnSteps are the steps with steady changes, the slowest first.
var ChurnSteps = []string{"20 changes/s", "100 changes/s"}
