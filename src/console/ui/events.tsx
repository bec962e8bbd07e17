// Events of the audit log, as sentences with what changed.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isProviderSide } from "../access/rules.ts";
import type { Names } from "../actor.ts";
import { thingsOf, type Things } from "../activity.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { eventSentence, readableChanges, unnamed, type Known } from "../event-words.ts";
import { mayAdminister, slug } from "../me.ts";
import { readNamed } from "../named-nodes.ts";
import { useProviderWords } from "../provider-words.ts";
import { pathOf } from "../router.ts";
import { ruleChangeOf } from "../rule-change.ts";
import { exact } from "../times.ts";
import { When } from "./parts.tsx";

const noNames: Names = new Map();

type EventsProps = { events: readonly AuditEvent[]; names?: Names; things?: Things } & Pick<
  Known,
  "settings"
>;

export function Events({ events, names = noNames, things = thingsOf(events), settings }: EventsProps) {
  const own = slug.value ?? "";
  const named = useNamed(own, unnamed(events, things), things);
  const words = useProviderWords(own, events.some(namesProvider));
  const known = useMemo((): Known => ({ names, things: named, words, settings }), [names, named, words]);
  return (
    <ol class="events">
      {events.map((event) => (
        <One key={event.id} event={event} known={known} />
      ))}
    </ol>
  );
}

const namesProvider = (event: AuditEvent): boolean => {
  const { added = [], removed = [] } = ruleChangeOf(event) ?? {};
  return [...added, ...removed].some(({ peer, target }) => isProviderSide(peer) || isProviderSide(target));
};

/** Known names, and those of machines that events name only by number. */
export function useNamed(own: string, ids: readonly number[], things: Things): Things {
  const [found, find] = useState(new Map<string, string>());
  const asked = useRef(new Set<number>());
  const missing = ids.filter((id) => !asked.current.has(id));
  useEffect(() => {
    if (missing.length === 0) return;
    for (const id of missing) asked.current.add(id);
    for (const isRevoked of [false, true])
      readNamed(own, missing, isRevoked).then(
        (nodes) =>
          find(
            (before) => new Map([...before, ...nodes.map(({ id, name }) => [`node/${id}`, name] as const)]),
          ),
        // Keep the numbers: the bar already says that the control plane is away.
        () => undefined,
      );
  }, [missing.join(",")]);
  const all = useRef<Things>(things);
  const next = new Map([...found, ...things]);
  // The same map while no name changed: sentences are made of it.
  if (next.size !== all.current.size || [...next].some(([thing, name]) => all.current.get(thing) !== name))
    all.current = next;
  return all.current;
}

/** Drawn once, not for each event that comes. */
function One({ event, known }: { event: AuditEvent; known: Known }) {
  const isOfRules = event.type === "rule.updated" || ruleChangeOf(event) !== undefined;
  const mayUndo = slug.value !== undefined && mayAdminister.value && isOfRules;
  return useMemo(() => drawn(event, known, mayUndo), [event, known, mayUndo]);
}

function drawn(event: AuditEvent, known: Known, mayUndo: boolean) {
  const { parts, by } = eventSentence(event, known);
  const changes = readableChanges(event, known);
  const { ip } = event.actor;
  return (
    <li>
      <When at={event.at} />
      <div>
        {parts.map((part, at) => (at % 2 === 0 ? part : <bdi>{part}</bdi>))}
        {changes.length === 0 ? null : (
          <dl class="changes">
            {changes.map(({ field, removed, added }) => (
              <div key={field}>
                <dt>
                  <bdi>{field}</bdi>
                </dt>
                <dd>
                  {listed(removed, "del")}
                  {removed.length > 0 && added.length > 0 ? " " : ""}
                  {listed(added, "ins")}
                </dd>
              </div>
            ))}
          </dl>
        )}
        <Raw event={event} by={[by, ip === null ? "" : `from ${ip}`].join(" ").trim()} />
      </div>
      {mayUndo ? (
        <a
          class="button small"
          href={`${pathOf(slug.value ?? "", "access")}?undo=${event.id}`}
          title="Edits that take this change of the rules back, to look at before they are saved"
        >
          Undo
        </a>
      ) : null}
    </li>
  );
}

const listed = (texts: readonly string[], Tag: "del" | "ins") =>
  texts.map((text, at) => (
    <>
      <Tag key={text}>
        <bdi>{text}</bdi>
      </Tag>
      {at < texts.length - 1 ? ", " : ""}
    </>
  ));

/** The event as the API and webhooks have it. */
function Raw({ event, by }: { event: AuditEvent; by: string }) {
  const [isOpen, open] = useState(false);
  return (
    <details
      class="quiet"
      onToggle={({ currentTarget }: Event) => open((currentTarget as HTMLDetailsElement).open)}
    >
      <summary>
        {exact(Date.parse(event.at))} <bdi>{by}</bdi> <code>{event.type}</code>
      </summary>
      {isOpen ? (
        <pre>
          <bdi>{JSON.stringify(event, null, 2)}</bdi>
        </pre>
      ) : null}
    </details>
  );
}
