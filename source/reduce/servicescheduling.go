package reduce

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// The annotations by which a Service asks for another IPVS scheduler than the
// node's; see docs/adr/0012-ipvs-differences.md.
const (
	annotationScheduler = "sluice.dev/ipvs-scheduler"
	annotationFlags     = "sluice.dev/ipvs-flags"
)

// schedulers are those of the kernel that decide by what a virtual server knows:
// no weights are set here, so that the weighted ones do as their plain kin.
var schedulers = []string{"dh", "fo", "lblc", "lblcr", "lc", "mh", "nq", "ovf", "rr", "sed", "sh", "wlc", "wrr"}

// hashing are the schedulers that have flags: a port flag and a fallback flag,
// each with the scheduler's name in front.
var hashing = []string{"mh", "sh"}

const (
	flagPorts    = "-port"
	flagFallback = "-fallback"
)

// scheduling reduces the annotations. Where either cannot be used, the node's
// scheduler serves: half of a wish is none.
func scheduling(n *notes, annotations map[string]string) service.Scheduling {
	scheduler, asked := annotations[annotationScheduler]
	flags, flagged := annotations[annotationFlags]
	if !asked && !flagged {
		return service.Scheduling{}
	}
	scheduler = strings.TrimSpace(scheduler)
	switch {
	case !asked:
		n.add(annotation(annotationFlags), "%q says nothing without the annotation %s (%s); the node's scheduler is used",
			flags, annotationScheduler, strings.Join(hashing, " or "))
		return service.Scheduling{}
	case !slices.Contains(schedulers, scheduler):
		n.add(annotation(annotationScheduler), "%q is not a scheduler: want one of %s; the node's scheduler is used",
			scheduler, strings.Join(schedulers, ", "))
		return service.Scheduling{}
	}
	wish := service.Scheduling{Scheduler: intern(scheduler)}
	if !flagged {
		// As the node's mh does.
		wish.Ports = scheduler == "mh"
		return wish
	}
	return schedulingFlags(n, wish, flags)
}

// schedulingFlags adds what the annotation of flags says to a wish.
func schedulingFlags(n *notes, wish service.Scheduling, flags string) service.Scheduling {
	for flag := range strings.SplitSeq(flags, ",") {
		switch flag = strings.TrimSpace(flag); {
		case flag == "":
		case !slices.Contains(hashing, wish.Scheduler):
			n.add(annotation(annotationFlags), "%q: scheduler %s has no flags, only %s have; the node's scheduler is used",
				flags, wish.Scheduler, strings.Join(hashing, " and "))
			return service.Scheduling{}
		case flag == wish.Scheduler+flagPorts:
			wish.Ports = true
		case flag == wish.Scheduler+flagFallback:
			wish.Fallback = true
		default:
			n.add(annotation(annotationFlags), "%q: %q is not a flag of scheduler %s: want %s; the node's scheduler is used",
				flags, flag, wish.Scheduler, wish.Scheduler+flagPorts+", "+wish.Scheduler+flagFallback)
			return service.Scheduling{}
		}
	}
	return wish
}

// annotation is the path of an annotation:
// "metadata.annotations[sluice.dev/ipvs-flags]".
func annotation(name string) path { return field("metadata.annotations[" + name + "]") }
