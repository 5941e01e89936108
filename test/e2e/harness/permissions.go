package harness

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proxierRole is the API server's built-in role for service proxies.
const proxierRole = "system:node-proxier"

// Forbid takes the right to read a resource away from service proxies, and returns what gives it back.
// Watches that are open already go on; what fails is to list and to start watching.
func (c *Cluster) Forbid(group, resource string) (permit func()) {
	c.t.Helper()
	before, err := c.rewriteRole(c.t.Context(), func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return slices.DeleteFunc(slices.Clone(rules), func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource)
		})
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return func() {
		c.t.Helper()
		if _, err := c.rewriteRole(c.t.Context(), func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return before }); err != nil {
			c.t.Fatal(err)
		}
	}
}

// rewriteRole replaces the rules of the role and returns those it had.
func (c *Cluster) rewriteRole(ctx context.Context, change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
	roles := c.Client.RbacV1().ClusterRoles()
	role, err := roles.Get(ctx, proxierRole, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read role %s: %w", proxierRole, err)
	}
	before := role.Rules
	role.Rules = change(before)
	if len(role.Rules) == len(before) {
		return nil, fmt.Errorf("role %s: the change of its %d rules changed nothing", proxierRole, len(before))
	}
	if _, err := roles.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("write role %s: %w", proxierRole, err)
	}
	return before, nil
}
