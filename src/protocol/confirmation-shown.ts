// The user of a node has to confirm that it is still theirs, as status and doctor show it. Keep this file light: `status`
// loads it.

/** `until`: the node is revoked then. `url`: the page with the button. */
export type Confirmation = { until: string; url: string };

/** Part of a sentence, and what to do. */
export function describeConfirmation({ until, url }: Confirmation): { what: string; next: string } {
  return {
    what: `its user has to confirm it by ${until}, or it is revoked`,
    next: `Its user signs in and confirms it: ${url}`,
  };
}
