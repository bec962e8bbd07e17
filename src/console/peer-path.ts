// The shape of a path to a peer, for the pages that show one.

/** How a node reaches a peer, as lists of paths in the API show it. */
export type PeerPath = {
  /** The id of its machine. */
  peer: number | null;
  path: "direct" | "relayed" | "none" | "unknown";
  relays: readonly string[];
  probe: "answers" | "broken" | "not_probed";
  rtt_ms: number | null;
  loss: number | null;
};

export type ReportedPath = PeerPath & {
  reported_at: string;
  /** It goes over relays that are all away: it was so when it was reported. */
  relays_away: boolean;
};
