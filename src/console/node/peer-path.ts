// The shape of a path to a peer, for the pages that show one.

import type { Path } from "../../api/paths/paths.ts";

/** `peer`: the id of its node. */
export type PeerPath = Pick<Path, "peer" | "path" | "relays" | "probe" | "rtt_ms" | "loss">;

export type ReportedPath = PeerPath & Pick<Path, "reported_at" | "relays_away">;
