// The rotation of the organization's CAs: its progress, what administrators do with it, and a key that is known to others.

import { request } from "../contact/api.ts";
import { useEffect, useState } from "preact/hooks";
import { authoritiesApi, type Authorities } from "../../api/certificates/authorities.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { actorOf } from "../activity/actor.ts";
import {
  lastSteering,
  progressOf,
  rollbackWarning,
  rotationBegins,
  stepOf,
  type Authority,
} from "./authorities.ts";
import { readEvents } from "../activity/log.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { Button } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Check } from "../ui/form.tsx";
import { Icon } from "../ui/icon.tsx";
import { AwaitedNodes } from "../nodes/awaited-nodes.tsx";
import { Panel } from "../ui/page.tsx";
import { Line, When } from "../ui/parts.tsx";
import { plural } from "../words/numbers.ts";

type Action = "start" | "pause" | "resume" | "rollback" | "hurry";
/**
 * What a user asks for. `hurry`: a rotation that is running does not wait for tunnels; it is sent as `start` with `now`.
 * `isNow`: the same for one that starts, because a key may be known to others.
 */
export type Asked = { action: Action; isNow?: boolean };

export const pathOfCas = (slug: string) => apiPath(authoritiesApi.retrieve, { slug });

type RotationProps = { slug: string; data: Authorities; ask(asked: Asked): void };

const steps = ["All learn the next CA", "It signs, node by node", "The former is trusted no more"];

/** Its three steps are also its progress. */
export function RotationPanel({ slug, data: { cas, rotation }, ask }: RotationProps) {
  const { phase, paused, waiting_for: waiting, next_step_at, auto, rolling_back } = rotation;
  return (
    <Panel title="Rotation" hasRoom={true}>
      <div role="status">
        <p>
          {stepOf(rotation)} {paused ? <strong>It is paused.</strong> : null}
        </p>
        <ol class="steps thin mt12">
          {progressOf(rotation).map((state, at) => (
            <li key={at} class={state} aria-current={state === "here" ? "step" : undefined}>
              <span class="n">{state === "done" ? <Icon name="check" /> : at + 1}</span>
              <h2>{steps[at]}</h2>
            </li>
          ))}
        </ol>
        {waiting.length === 0 ? null : (
          <p class="quiet">{`It waits for ${plural(waiting.length, "node")} to confirm. One that goes away is not waited for: it catches up when it is back, or can be revoked.`}</p>
        )}
        {rotation.awaits_signers ? <p>It waits for signers.</p> : null}
        {next_step_at === null ? null : (
          <p>
            The next step follows <When at={next_step_at} />.
          </p>
        )}
        {phase === "none" ? (
          <p class="quiet">
            {auto
              ? "The control plane starts one by itself before the CAs end. Tunnels stay up."
              : "It is started by hand only; Settings can change that. Tunnels stay up."}
          </p>
        ) : (
          <Started key={`${rolling_back}`} slug={slug} cas={cas} />
        )}
      </div>
      {phase === "none" || !mayAdminister.value ? null : (
        <div class="group mt8">
          <Button isSmall={true} onClick={() => ask({ action: paused ? "resume" : "pause" })}>
            {paused ? "Resume" : "Pause"}
          </Button>
          {rolling_back ? null : (
            <>
              <Button isSmall={true} onClick={() => ask({ action: "hurry" })}>
                Do not wait for tunnels
              </Button>
              <Button isSmall={true} onClick={() => ask({ action: "rollback" })}>
                Roll back
              </Button>
            </>
          )}
        </div>
      )}
      <AwaitedNodes slug={slug} ids={waiting} title={`Nodes that it waits for: ${waiting.length}`} />
    </Panel>
  );
}

/** The user who started the rotation, or rolled it back. */
function Started({ slug, cas }: { slug: string; cas: readonly Authority[] }) {
  const names = useMemberNames(slug);
  const [event, setEvent] = useState<AuditEvent>();
  useEffect(() => {
    const start = rotationBegins(cas);
    // Optional: without it, the page shows less.
    readEvents(slug, { start, end: undefined }, () => undefined).then(
      ({ events }) => setEvent(lastSteering(events)),
      () => undefined,
    );
  }, []);
  if (event === undefined) return null;
  return (
    <p>
      {event.after?.["action"] === "start" ? "Started" : "Rolled back"} <When at={event.at} /> by{" "}
      <bdi>{actorOf(event, names)}</bdi>
      {event.after?.["now"] === "true" ? ": a key may be known to others" : null}.
    </p>
  );
}

type KnownKeyProps = { isRotating: boolean; ask(asked: Asked): void };

export function KnownKey({ isRotating, ask }: KnownKeyProps) {
  return (
    <Panel title="Is a key of a CA known to others?" hasRoom={true}>
      <p class="quiet">
        Then rotate at once. Do not roll back: that returns to the known key. Nodes trust it until they have
        confirmed the last step.
      </p>
      <p class="group mt8">
        <Button
          kind="danger"
          isSmall={true}
          onClick={() => ask(isRotating ? { action: "hurry" } : { action: "start", isNow: true })}
        >
          Replace the CAs now
        </Button>
      </p>
    </Panel>
  );
}

const tornWords = "Tunnels that still use a former CA are torn down, and can lose packets for some seconds.";
const questions: Readonly<
  Record<Action, { title: string; action: string; effect: string; flags: readonly string[] }>
> = {
  start: {
    title: "Rotate the CAs?",
    action: "Start the rotation",
    effect:
      "All nodes get the new CAs beside the present ones, then certificates of the new CAs, then they forget the present ones. Each step waits for all nodes that are online; one that is away catches up when it is back. All tunnels stay up. You can pause it, or roll it back.",
    flags: [],
  },
  pause: {
    title: "Pause the rotation?",
    action: "Pause",
    effect: "It stays in this step until you resume it. All tunnels stay up.",
    flags: ["--pause"],
  },
  resume: {
    title: "Resume the rotation?",
    action: "Resume",
    effect: "It goes on with its next step.",
    flags: ["--resume"],
  },
  rollback: {
    title: "Roll the rotation back?",
    action: "Roll back",
    effect: "The nodes return to the CAs from before the rotation, step by step. All tunnels stay up.",
    flags: ["--rollback"],
  },
  hurry: {
    title: "Go on without waiting for tunnels?",
    action: "Do not wait for tunnels",
    effect: `Nodes end their trust in the former CAs at once. Choose it when a key may be known to others. ${tornWords}`,
    flags: [],
  },
};

/** Asks before a step of a rotation is started, paused or undone. */
export function RotationDialog({ action, isNow: isAskedNow = false, close }: Asked & { close(): void }) {
  const slug = currentSlug.value ?? "";
  const [isNow, setNow] = useState(isAskedNow || action === "hurry");
  const question = questions[action];
  const body = { action: action === "hurry" ? ("start" as const) : action, ...(isNow ? { now: true } : {}) };
  return (
    <Confirm
      title={question.title}
      action={question.action}
      isDanger={false}
      effect={
        <>
          <p>{question.effect}</p>
          {action === "rollback" ? (
            <>
              <p class="notice">{rollbackWarning}</p>
              <Line text={`agent admin ca rotate ${slug} --now`} />
            </>
          ) : null}
          {action === "start" ? (
            <Check
              label={`A key of the present CAs may be known to others: do not wait for tunnels. ${tornWords}`}
              checked={isNow}
              set={setNow}
            />
          ) : null}
        </>
      }
      command={["ca", "rotate", slug, ...question.flags, ...(isNow ? ["--now"] : [])]}
      sends={request(authoritiesApi.rotate, { slug }, body)}
      changes={pathOfCas(slug)}
      close={close}
    />
  );
}
