package kube

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestContactLogsFailuresAtABoundedRate(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	c := &contact{resource: "services", log: zap.New(core)}
	start := time.Unix(1000, 0)
	broken := errors.New("connection refused")

	for second := range 150 { // two and a half minutes
		c.failed(start.Add(time.Duration(second)*time.Second), broken)
	}
	if got := logs.FilterLevelExact(zap.ErrorLevel).Len(); got != 3 {
		t.Errorf("%d errors logged in 150 s, want one at once and one for each minute", got)
	}
	if got := c.status(); !got.FailingSince.Equal(start) || got.Err != broken {
		t.Errorf("status is %+v, want failing since the first error", got)
	}
	end := start.Add(3 * time.Minute)
	c.answered(end)
	c.answered(end)
	if got := logs.FilterLevelExact(zap.InfoLevel).Len(); got != 1 {
		t.Errorf("the recovery was logged %d times, want once", got)
	}
	if got := c.status(); !got.FailingSince.IsZero() || got.Err != nil || !got.Heard.Equal(end) {
		t.Errorf("status after recovery is %+v", got)
	}
}

func TestContactKnowsHarmlessErrors(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, err := range map[string]error{
		"expired":        apierrors.NewResourceExpired("old"),
		"gone":           apierrors.FromObject(&metav1.Status{Code: 410, Reason: metav1.StatusReasonGone}),
		"no watch-lists": apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
	} {
		c := &contact{resource: "services", log: zap.NewNop()}
		c.failed(now, err)
		if got := c.status(); !got.FailingSince.IsZero() || !got.Heard.Equal(now) {
			t.Errorf("%s: status is %+v, want a sign of life", name, got)
		}
	}
	c := &contact{resource: "services", log: zap.NewNop()}
	c.failed(now, context.Canceled)
	if got := c.status(); got != (Status{Resource: "services"}) {
		t.Errorf("our own stop counted as %+v", got)
	}
}
