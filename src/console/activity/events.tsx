// Events of the audit log: a line each, by days, with what changed; all of one below it.

import { useMemo, useState } from "preact/hooks";
import { isProviderSide } from "../access/rules.ts";
import { actorOf } from "./actor.ts";
import type { Change } from "./event-changes.ts";
import { isFailure } from "./event-filter.ts";
import { clockOf, dayOf } from "../words/ago.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { eventSentence, readableChanges, type Known } from "./event-words.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useProviderWords } from "../providers/provider-words.ts";
import { pathOf } from "../frame/router.ts";
import { ruleChangeOf } from "./rule-change.ts";
import { dayWords, exact, now, utc, timeFormat } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import { Icon } from "../ui/icon.tsx";
import { Copy, Facts, type Fact } from "../ui/parts.tsx";
import { Actor, Said, useNames, type EventsProps } from "./recent-events.tsx";

const dayMs = 86_400_000;
/** How many changes a line shows, and texts of each; the rest stands below it. */
const maxInLine = 3;

function useKnown(props: EventsProps): Known {
  const { events, settings } = props;
  const { names, things } = useNames(props);
  const words = useProviderWords(currentSlug.value ?? "", events.some(namesProvider));
  // `settings` is always the same object.
  return useMemo((): Known => ({ names, things, words, settings }), [names, things, words]);
}

const namesProvider = (event: AuditEvent): boolean => {
  const { added = [], removed = [] } = ruleChangeOf(event) ?? {};
  return [...added, ...removed].some(({ peer, target }) => isProviderSide(peer) || isProviderSide(target));
};

/** By days, the newest first. */
export function Events(props: EventsProps) {
  const known = useKnown(props);
  const days = Map.groupBy(props.events, ({ at }) => dayOf(Date.parse(at)));
  const namedDays = { [dayOf(now.value - dayMs)]: "Yesterday, ", [dayOf(now.value)]: "Today, " };
  return (
    <div>
      {[...days].map(([day, events]) => (
        <section key={day}>
          <h2 class="day">
            {namedDays[day] ?? ""}
            {dayWords(Date.parse(events[0]?.at ?? ""))}
          </h2>
          <ol class="lines log">
            {events.map((event) => (
              <EventLine key={event.id} event={event} known={known} />
            ))}
          </ol>
        </section>
      ))}
    </div>
  );
}

/** A line, which is drawn again only if something of it changed, not for each event that comes. */
function EventLine({ event, known }: { event: AuditEvent; known: Known }) {
  const [isOpen, setOpen] = useState(false);
  const isOfRules = event.type === "rule.updated" || ruleChangeOf(event) !== undefined;
  const mayUndo = currentSlug.value !== undefined && mayAdminister.value && isOfRules;
  return useMemo(
    () => drawEvent(event, known, mayUndo, isOpen, () => setOpen(!isOpen)),
    [event, known, mayUndo, isOpen],
  );
}

function drawEvent(event: AuditEvent, known: Known, mayUndo: boolean, isOpen: boolean, toggle: () => void) {
  const { parts } = eventSentence(event, known);
  const changes = readableChanges(event, known);
  const at = Date.parse(event.at);
  // A press on the line opens it, unless it was for a link in it, or selected text.
  const press = ({ target }: Event) => {
    const isForOther = target instanceof Element && target.closest("a, button, .detail") !== null;
    if (!isForOther && getSelection()?.isCollapsed !== false) toggle();
  };
  return (
    <li class={isOpen ? "open" : ""} onClick={press}>
      <time datetime={utc(at)} title={exact(at)}>
        {clockOf(at)}
      </time>
      <Actor event={event} names={known.names} />
      <span class="say cut">
        <span class={isFailure(event.type) ? "is-bad" : ""}>
          <Said parts={parts} />
        </span>
        {changes.slice(0, maxInLine).map((change) => (
          <Delta key={change.field} {...change} max={maxInLine} />
        ))}
        {changes.length > maxInLine ? <span class="delta">and {changes.length - maxInLine} more</span> : null}
      </span>
      <span class="end">
        {mayUndo ? (
          <span class="no-phone">
            <Undo id={event.id} />
          </span>
        ) : null}
        <button type="button" class="type" aria-label={event.type} aria-expanded={isOpen} onClick={toggle}>
          <code class="no-phone">{event.type}</code>
          <Icon name={isOpen ? "down" : "right"} />
        </button>
      </span>
      {isOpen ? <Detail {...{ event, known, changes, mayUndo }} /> : null}
    </li>
  );
}

const timeShape = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/;
/** Times of the API as this browser writes them. */
const shownValue = (text: string) =>
  timeShape.test(text)
    ? timeFormat({ dateStyle: "medium", timeStyle: "short" }).format(Date.parse(text))
    : text;

function Delta({ field, removed, added, max }: Change & { max: number }) {
  const left = Math.max(0, removed.length - max) + Math.max(0, added.length - max);
  return (
    <span class="delta">
      <bdi>{field}</bdi>
      {removed.slice(0, max).map((text) => (
        <del key={text}>
          <bdi>{shownValue(text)}</bdi>
        </del>
      ))}
      {added.slice(0, max).map((text) => (
        <ins key={text}>
          <bdi>{shownValue(text)}</bdi>
        </ins>
      ))}
      {left === 0 ? null : `and ${left} more`}
    </span>
  );
}

const Undo = ({ id }: { id: number }) => (
  <Button
    kind="ghost"
    isSmall={true}
    href={`${pathOf(currentSlug.value ?? "", "access")}?undo=${id}`}
    title="Edits that take this change of the rules back, to look at before they are saved"
  >
    Undo
  </Button>
);

type DetailProps = { event: AuditEvent; known: Known; changes: readonly Change[]; mayUndo: boolean };

/** All of it: who and from where, the whole change, the place in the chain, and the event as the API and webhooks have it. */
function Detail({ event, known, changes, mayUndo }: DetailProps) {
  const [isRaw, setRaw] = useState(false);
  const { id, at, actor, hash } = event;
  const facts: Fact[] = [
    ["When", exact(Date.parse(at))],
    ["By", actorOf({ actor: { ...actor, ip: null } }, known.names)],
    ...(actor.ip === null ? [] : [["From", <code>{actor.ip}</code>] as const]),
    ...changes.map(({ field, removed, added }): Fact => [
      field,
      <span class="delta whole">
        {removed.map((text) => (
          <del key={text}>
            <bdi>{text}</bdi>
          </del>
        ))}
        {added.map((text) => (
          <ins key={text}>
            <bdi>{text}</bdi>
          </ins>
        ))}
      </span>,
    ]),
    [
      "Event",
      // Members are told no hash (server/audit/read.ts).
      <>
        <code>
          {id}
          {hash === "" ? "" : ` · ${hash.slice(0, 16)}…`}
        </code>
        {hash === "" ? null : <Copy text={hash} label="Copy the hash" />}
      </>,
    ],
  ];
  return (
    <div class="detail">
      <Facts facts={facts} />
      <Button kind="ghost" isSmall={true} icon="terminal" isPressed={isRaw} onClick={() => setRaw(!isRaw)}>
        As JSON
      </Button>
      {mayUndo ? <Undo id={id} /> : null}
      {isRaw ? (
        <pre>
          <bdi>{JSON.stringify(event, null, 2)}</bdi>
        </pre>
      ) : null}
    </div>
  );
}
