// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestContact_FailingSince: a contact fails since its first error, until the next answer.
func TestContact_FailingSince(t *testing.T) {
	c := &contact{resource: "services", log: zap.NewNop(), outage: &outage{log: zap.NewNop()}}
	defer c.outage.close()
	start, broken := time.Unix(1000, 0), errors.New("connection refused")
	c.failed(start, broken)
	c.failed(start.Add(time.Second), broken)
	if got := c.status(); !got.FailingSince.Equal(start) || got.Err != broken {
		t.Errorf("status is %+v, want failing since the first error", got)
	}
	end := start.Add(3 * time.Minute)
	c.answered(end)
	if got := c.status(); !got.FailingSince.IsZero() || got.Err != nil || !got.Heard.Equal(end) {
		t.Errorf("status after recovery is %+v", got)
	}
}

// TestContact_HarmlessErrors: expired versions and rejected watch lists count as an answer of the server, and a
// canceled context counts as nothing.
func TestContact_HarmlessErrors(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, err := range map[string]error{
		"expired":        apierrors.NewResourceExpired("old"),
		"gone":           apierrors.FromObject(&metav1.Status{Code: 410, Reason: metav1.StatusReasonGone}),
		"no watch-lists": apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
	} {
		c := &contact{resource: "services", log: zap.NewNop(), outage: &outage{log: zap.NewNop()}}
		c.failed(now, err)
		if got := c.status(); !got.FailingSince.IsZero() || !got.Heard.Equal(now) {
			t.Errorf("%s: status is %+v, want a sign of life", name, got)
		}
	}
	c := &contact{resource: "services", log: zap.NewNop(), outage: &outage{log: zap.NewNop()}}
	c.failed(now, context.Canceled)
	if got := c.status(); got != (Status{Resource: "services"}) {
		t.Errorf("our own stop counted as %+v", got)
	}
}

// outageLines runs what happens during an outage in virtual time, and returns the lines of the log.
func outageLines(t *testing.T, happens func(all map[string]*contact)) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		o := &outage{log: zap.New(core)}
		all := map[string]*contact{}
		for _, resource := range watched {
			all[resource] = &contact{resource: resource, log: o.log, outage: o}
		}
		happens(all)
		o.close()
		time.Sleep(time.Hour)
		for _, line := range logs.All() {
			lines = append(lines, fmt.Sprint(line.Level, " ", line.Message, " ", line.ContextMap()))
		}
	})
	return lines
}

// TestOutage_LoggedOnceForAllResources: an outage of all resources logs one line when it begins, one each minute and
// one at the end, each with the resources. The lines are errors from the first minute on.
func TestOutage_LoggedOnceForAllResources(t *testing.T) {
	for name, tt := range map[string]struct {
		lasts time.Duration
		want  []string
	}{
		"20 ms": {20 * time.Millisecond, []string{
			"warn cannot read from the API server; using the last known state map[duration:20ms error:connection refused resources:[endpointslices nodes services]]",
			"info API server reachable again map[duration:20ms resources:[endpointslices nodes services]]",
		}},
		"6 s": {6 * time.Second, []string{
			"warn cannot read from the API server; using the last known state map[duration:1s error:connection refused resources:[endpointslices nodes services]]",
			"info API server reachable again map[duration:6s resources:[endpointslices nodes services]]",
		}},
		"130 s": {130 * time.Second, []string{
			"warn cannot read from the API server; using the last known state map[duration:1s error:connection refused resources:[endpointslices nodes services]]",
			"error cannot read from the API server; using the last known state map[duration:1m0s error:connection refused resources:[endpointslices nodes services]]",
			"error cannot read from the API server; using the last known state map[duration:2m0s error:connection refused resources:[endpointslices nodes services]]",
			"info API server reachable again map[duration:2m10s resources:[endpointslices nodes services]]",
		}},
	} {
		got := outageLines(t, func(all map[string]*contact) {
			began := time.Now()
			for time.Since(began) < tt.lasts {
				for _, resource := range []string{services, endpointSlices, nodes} {
					all[resource].failed(time.Now(), errors.New("connection refused"))
				}
				time.Sleep(10 * time.Millisecond)
			}
			for _, c := range all {
				c.answered(time.Now())
				c.answered(time.Now())
			}
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: the log is\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// TestOutage_LastsUntilAllResourcesRead: an answer about one resource does not end an outage of another one, and a
// stopped Source logs no end.
func TestOutage_LastsUntilAllResourcesRead(t *testing.T) {
	got := outageLines(t, func(all map[string]*contact) {
		all[services].failed(time.Now(), errors.New("forbidden"))
		all[nodes].failed(time.Now(), errors.New("connection refused"))
		time.Sleep(10 * time.Second)
		all[nodes].answered(time.Now())
		time.Sleep(55 * time.Second)
	})
	if len(got) != 2 || !strings.Contains(got[0], "[nodes services]") || !strings.Contains(got[1], "resources:[services]") {
		t.Errorf("the log is %q", got)
	}
}
