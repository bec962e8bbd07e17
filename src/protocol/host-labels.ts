// The names of a node below its organization's domain. Shared by control plane and node: an alias must not get any of
// them.

/** Characters of a DNS label (RFC 1035, section 2.3.4). */
export const maxLabel = 63;

/**
 * The DNS labels of a node, the preferred one first. A host label begins with a letter (RFC 1035), a node name may begin
 * with a digit: the node `10` is `n-10`, and also `10`, because that stands in its X.509 certificate. A name that is too long for
 * the prefix has no second label: a shortened one could be that of another node.
 */
export function hostLabels(nodeName: string): readonly string[] {
  const prefixed = `n-${nodeName}`;
  return /^[a-z]/.test(nodeName) || prefixed.length > maxLabel ? [nodeName] : [prefixed, nodeName];
}

/** The names that a node with this label may have. */
export function nodesWithLabel(label: string): readonly string[] {
  return /^n-[0-9]/.test(label) ? [label, label.slice("n-".length)] : [label];
}
