// Wakes nodes for changes of names, which come many times a second while many nodes register. The first change wakes
// the nodes at once; later ones soon after wake them together.

/** A change never waits longer, ms. */
const longestMs = 1500;

/** Returns a function that wakes an organization now, or together with later changes after its rest. */
export function makePace(edge: {
  wake(orgId: number): void;
  /** How long waking takes about, ms. */
  restMs(orgId: number): number;
}): (orgId: number) => void {
  /** The organizations that rest now. True: names changed meanwhile. */
  const resting = new Map<number, boolean>();
  const wake = (orgId: number) => {
    if (resting.has(orgId)) return void resting.set(orgId, true);
    edge.wake(orgId);
    resting.set(orgId, false);
    const rest = setTimeout(
      () => {
        const isAgain = resting.get(orgId) === true;
        resting.delete(orgId);
        if (isAgain) wake(orgId);
      },
      Math.min(longestMs, edge.restMs(orgId)),
    );
    rest.unref();
  };
  return wake;
}
