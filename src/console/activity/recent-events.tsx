// The newest events, as short lists have them, and what these share with the log: names, and who did it.

import type { Names } from "./actor.ts";
import { thingsOf, type Things } from "./event-filter.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { eventSentence, unnamed, type Known } from "./event-words.ts";
import { me, currentSlug } from "../contact/me.ts";
import { useNamed } from "./named-nodes.ts";
import type { IconName } from "../ui/drawings.ts";
import { Avatar } from "../ui/icon.tsx";
import { When } from "../ui/parts.tsx";

export type EventsProps = { events: readonly AuditEvent[]; names: Names; things?: Things } & Pick<
  Known,
  "settings"
>;

const noWords = new Map<string, string>();

/** Names of users, and of nodes that events name by their numbers. */
export function useNames({
  events,
  names,
  things = thingsOf(events),
}: EventsProps): Pick<Known, "names" | "things"> {
  return { names, things: useNamed(currentSlug.value ?? "", unnamed(events, things), things) };
}

/** The newest ones, the newest first, in one line each. */
export function RecentEvents(props: EventsProps) {
  const { names, things } = useNames(props);
  const said = new Map([...names, [me.value?.id ?? 0, "you"] as const]);
  const known = { names: said, things, words: noWords };
  return (
    <ol class="lines recent">
      {props.events.map((event) => {
        const { parts, by } = eventSentence(event, known);
        const text = parts.join("");
        return (
          <li key={event.id}>
            <Actor event={event} names={names} />
            <span class="cut" title={by === "" ? text : `${text} (${by})`}>
              <Said parts={parts} />
            </span>
            <When at={event.at} />
          </li>
        );
      })}
    </ol>
  );
}

/** Who did it; of what happened by itself, about what. */
export function Actor({ event: { actor, subject }, names }: { event: AuditEvent; names: Names }) {
  if (actor.kind === "person") return <Avatar name={names.get(actor.id ?? 0) ?? "?"} />;
  return <Avatar name={actor.kind} icon={icons[subject.slice(0, subject.indexOf("/"))] ?? "servers"} />;
}

const icons: Readonly<Record<string, IconName>> = {
  authority: "certificates",
  enrollment: "machines",
  group: "machines",
  member: "people",
  name: "machines",
  node: "machines",
  organization: "settings",
  policy: "access",
  registration: "machines",
  registration_token: "keys",
  rule: "access",
  service_token: "keys",
  tls: "certificates",
  user: "people",
  webhook: "webhooks",
};

/** Every second part is a text from outside. */
export const Said = ({ parts }: { parts: readonly string[] }) => (
  <>{parts.map((part, at) => (at % 2 === 0 ? part : <bdi key={at}>{part}</bdi>))}</>
);
