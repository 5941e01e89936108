package waves

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// The annotations of the Lease. A person sets the one for the approval.
const (
	hashKey     = "sluice.dev/configuration-hash"
	resultKey   = "sluice.dev/configuration-result"
	reasonKey   = "sluice.dev/configuration-reason"
	previousKey = "sluice.dev/configuration-previous"
	ApprovedKey = "sluice.dev/configuration-approved"
)

// requestMax bounds each request.
const requestMax = 10 * time.Second

// Lease is the object that all nodes share. Any goroutine may use it.
type Lease struct {
	namespace, name string
	client          coordination.LeaseInterface
}

// NewLease returns the Lease with a name of the form NAMESPACE/NAME. It sends no request.
func NewLease(config *rest.Config, at string) (*Lease, error) {
	namespace, name, _ := strings.Cut(at, "/")
	client, err := coordination.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client for the Lease %s: %w", at, err)
	}
	return &Lease{namespace: namespace, name: name, client: client.Leases(namespace)}, nil
}

// Approval is the command that approves a configuration.
func (l *Lease) Approval(hash string) string {
	return fmt.Sprintf("kubectl -n %s annotate lease %s --overwrite %s=%s", l.namespace, l.name, ApprovedKey, hash)
}

// Read returns the State.
func (l *Lease) Read(ctx context.Context) (State, error) {
	_, s, err := l.get(ctx)
	return s, err
}

// Take makes a node the canary of a configuration, unless the State has changed since it was read. Then it reports
// false.
func (l *Lease) Take(ctx context.Context, read *State, hash, node string) (bool, error) {
	lease, now, err := l.get(ctx)
	if err != nil || now.Hash != read.Hash || now.Result != read.Result || now.Canary != read.Canary {
		return false, err
	}
	if err = l.put(ctx, lease, now.taken(hash, node)); apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// Report writes the result of a configuration, unless a newer one has replaced it, or it is bad already.
func (l *Lease) Report(ctx context.Context, hash, result, reason string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lease, now, err := l.get(ctx)
		if err != nil || now.Hash != hash || now.Result == Bad || now.Result == result {
			return err
		}
		now.Result, now.Reason = result, reason
		return l.put(ctx, lease, now)
	})
}

func (l *Lease) get(ctx context.Context) (*v1.Lease, State, error) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	lease, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		return nil, State{}, l.explain("get", err)
	}
	a := lease.Annotations
	return lease, State{
		Hash: a[hashKey], Canary: ptr.Deref(lease.Spec.HolderIdentity, ""), Result: a[resultKey], Reason: a[reasonKey],
		Approved: a[ApprovedKey], Previous: strings.Fields(a[previousKey]),
	}, nil
}

// put writes a State. The API server rejects it if the Lease has changed since it was read.
func (l *Lease) put(ctx context.Context, lease *v1.Lease, s State) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	for key, value := range map[string]string{
		hashKey: s.Hash, resultKey: s.Result, reasonKey: s.Reason, previousKey: strings.Join(s.Previous, " "),
	} {
		lease.Annotations[key] = value
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(s.Canary), ptr.To(metav1.NowMicro())
	_, err := l.client.Update(ctx, lease, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return err
	}
	return l.explain("update", err)
}

// explain says which object or permission is missing.
func (l *Lease) explain(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the Lease %s/%s does not exist; apply deploy/base, or set reload to immediately", l.namespace, l.name)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this proxy may not %s the Lease %s/%s; apply the Role and RoleBinding of deploy/base: %w", verb, l.namespace, l.name, err)
	default:
		return fmt.Errorf("cannot %s the Lease %s/%s: %w", verb, l.namespace, l.name, err)
	}
}
