// Types of events that the page Webhooks offers as examples. The control plane knows each of them.

export const exampleEvents = ["node.*", "policy.applied"] as const;
