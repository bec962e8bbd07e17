// The figures of a server's last day. Pure.

import type { SentOf } from "../../api/endpoint.ts";
import type { serversApi } from "../../api/servers.ts";

export type Point = SentOf<typeof serversApi.history>["hosts"][number]["points"][number];

/** As they were counted: a rounded rate would hide the few requests of a quiet server. */
export const countColumns = [
  { title: "requests", text: ({ requests }: Point) => `${requests}` },
  { title: "check-ins", text: ({ checkins }: Point) => `${checkins}` },
];
