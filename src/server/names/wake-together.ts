// Wakes nodes for changes of names, which come many times a second while many nodes register. The first change wakes
// the nodes at once; later ones soon after wake them together.

/** A change never waits longer, ms. */
const longestMs = 1500;

/**
 * Returns a function to call after a change of names. It wakes the organization's nodes at once or, soon after they were woken, when
 * the organization has rested.
 */
export function makeWaking(deps: {
  wake(orgId: number): void;
  /** For how long an organization rests after waking: about as long as its nodes need, ms. */
  restMs(orgId: number): number;
}): (orgId: number) => void {
  /** The organizations that rest now; true: names have changed meanwhile. */
  const resting = new Map<number, boolean>();
  const wake = (orgId: number) => {
    if (resting.has(orgId)) return void resting.set(orgId, true);
    deps.wake(orgId);
    resting.set(orgId, false);
    const rest = setTimeout(
      () => {
        const hasChanged = resting.get(orgId) === true;
        resting.delete(orgId);
        if (hasChanged) wake(orgId);
      },
      Math.min(longestMs, deps.restMs(orgId)),
    );
    rest.unref();
  };
  return wake;
}
