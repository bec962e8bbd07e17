// The second and third step of adding a node: the line to paste (paste.tsx), and which nodes come with its key, as it happens.

import { organizationsApi } from "../../api/organizations.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useRef } from "preact/hooks";
import { useLog } from "../activity/log.ts";
import { currentSlug } from "../contact/me.ts";
import { registrationsPath, type Registration } from "./registrations.ts";
import { useList, useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { Step } from "../ui/page.tsx";
import { Command, Paste, type Token } from "./paste.tsx";
import {
  atTime,
  JoinRequest,
  ManyMachines,
  OneMachine,
  type Joined,
  type Use,
} from "./arriving-machines.tsx";

/** Which new nodes wait for an administrator. */
export const useApproval = (slug: string) =>
  useResource(apiPath(organizationsApi.retrieve, { slug })).data?.node_approval ?? "none";

const mustWait = (approval: ReturnType<typeof useApproval>, isApproved: boolean) =>
  approval === "all" || (approval === "unapproved" && !isApproved);

/** How many events one request asks for. */
const atOnce = 200;

/**
 * What the log tells of a key: its uses, the newest last, names of the nodes that came with it, and when the `request` was
 * approved.
 */
function useUses(slug: string, token: Token, request: Registration | undefined) {
  // Reads the log too, because the stream of events may be closed at this moment.
  const { events } = useLog(slug, atOnce);
  const used = events
    .filter(({ type, subject }) => type === "token.used" && subject === `registration_token/${token.id}`)
    .map(({ after, at }): Use => ({ id: Number(after?.["node_id"]), at: Date.parse(at) }))
    .toReversed();
  const nameOf = (id: number) => {
    const event = events.find((each) => each.type === "node.registered" && each.subject === `node/${id}`);
    const name = event?.after?.["name"];
    return typeof name === "string" ? name : `node ${id}`;
  };
  const approved = events.find(
    ({ type, subject }) => type === "registration.approved" && subject === `registration/${request?.id}`,
  );
  return { used, nameOf, approvedAt: approved && Date.parse(approved.at) };
}

type ArrivalProps = {
  token: Token;
  joined: Joined | undefined;
  setJoined(joined: Joined): void;
  again(): void;
};

export function Arrival({ token, joined, setJoined, again }: ArrivalProps) {
  const slug = currentSlug.value ?? "";
  const isWaiting = mustWait(useApproval(slug), token.approved);
  const { data: open = [] } = useList(registrationsPath(slug));
  const requests = open.filter(({ registration_token_id: id }) => id === token.id);
  // An approved request leaves the list, and is still shown.
  const lastRequest = useRef<Registration | undefined>(undefined);
  lastRequest.current = requests[0] ?? lastRequest.current;
  const { used, nameOf, approvedAt } = useUses(slug, token, lastRequest.current);
  const isForOne = token.uses === 1;
  const isUsed = used.length >= token.uses;
  const onlyUse = isForOne ? used[0] : undefined;
  const name = onlyUse && <bdi>{nameOf(onlyUse.id)}</bdi>;
  return (
    <>
      {isUsed ? (
        <Step at={2} title="Pasted" state="done">
          <p class="quiet">
            Used at {atTime(used.at(-1)?.at ?? 0)}
            {isForOne && lastRequest.current !== undefined ? (
              <>
                {" "}
                from <bdi>{lastRequest.current.seen_from}</bdi>
              </>
            ) : null}
            . The key is worth nothing now.
          </p>
        </Step>
      ) : (
        <Step at={2} title="Paste a line on it" state="here">
          <Paste token={token} />
        </Step>
      )}
      <Step at={3} title={name ? <>{name} is in</> : "See it arrive"} state={isUsed ? "done" : "here"}>
        {isForOne ? (
          <OneMachine
            {...{ token, isWaiting, onlyUse, approvedAt, request: lastRequest.current, setJoined }}
            isAsking={requests.length > 0}
          />
        ) : (
          <>
            <ManyMachines slug={slug} uses={token.uses} used={used} nameOf={nameOf} />
            {requests.map((each) => (
              <ol class="live" key={each.id}>
                <JoinRequest machine={each} />
              </ol>
            ))}
          </>
        )}
        {joined === undefined ? null : (
          <>
            <p class="quiet mt12">Try it from another node:</p>
            <Command text={`ping -c 3 ${joined.address}`} />
          </>
        )}
        {isUsed ? (
          <p class="group mt12">
            {onlyUse === undefined ? null : (
              <Button kind="primary" href={pathOf(slug, "nodes", onlyUse.id)}>
                Open {name}
              </Button>
            )}
            <Button onClick={again}>Add another like it</Button>
          </p>
        ) : null}
      </Step>
    </>
  );
}
