// A client of the nexus server (SPEC.md, section 6).

import type { AnyEvent, Event, Streams } from "./events.mjs";
import type { CallOptions, Methods } from "./methods.mjs";

export type * from "./events.mjs";
export type * from "./methods.mjs";

export interface Options {
  /**
   * Of a server or of an agent, as in http://127.0.0.1:8765/agent/worker-1; https on another machine. Of several, in a list or with commas
   * between them, of machines that are one, the next is called where one is not to be had. Without it, the server at NEXUS_SERVER (as url),
   * else at NEXUS_PORT, else that of home, else at 8765.
   */
  url?: string | string[];
  /** A file with the authorities that sign the certificates of servers at https: NEXUS_CA, or those that node knows. */
  ca?: string;
  /** The agent, where url does not name it. */
  agentId?: string;
  /** Looked for as NEXUS3_API_KEY and in home, where it is missing. It is sent to each address. */
  apiKey?: string;
  /** Where the server keeps its key: NEXUS_HOME, or ~/.nexus3. */
  home?: string;
  /** Seconds that a request may take, 60 by default, null for no bound; timeout_s is added. */
  timeout?: number | null;
  /** How often what may be repeated is tried again, 5 by default. */
  retries?: number;
}

/** What GET /readyz says (SPEC.md, section 6.4). */
export interface Readiness {
  status: "ready" | "unready" | "draining";
  /** Why it is not ready; empty if it is. */
  reasons: string[];
  version: string;
  protocol_version: number;
  /** By state. */
  agents: Record<string, number>;
  turns_running: number;
  turns_waiting: number;
  guard: string;
  /** By name: "ok", or what is wrong. */
  checks: Record<string, string>;
  warnings: string[];
  goroutines: number;
}

export interface EventsOptions<After> extends CallOptions {
  /** What was seen last: 0 for all that is kept; missing for only what comes. */
  after?: After;
  /** Leaves out events of other types, but for gap and end. */
  types?: string[];
  /** Adds what tools put out while they run, which is not kept. */
  toolOutput?: boolean;
}

export interface AllEventsOptions extends EventsOptions<string | number> {
  /** Leaves out the events of other agents. */
  agents?: string[];
}

/** A call that failed. */
export class ClientError extends Error {
  /** Of JSON-RPC; null where no server answered. */
  code: number | null;
  /**
   * A word in capitals: the server's, or CONNECTION_FAILED, CLIENT_TIMEOUT, NO_KEY,
   * SERVER_UNPROVED and SERVER_UNTRUSTED (the key was not sent), NOT_NEXUS, NO_AGENT or INVALID_PARAMS.
   */
  type: string;
  details: string;
  recoverySuggestions: string[];
  /** All that the server said. */
  data: Record<string, unknown>;
  httpStatus: number;
  /** Seconds; 0 where the server does not say. */
  retryAfter: number;
  /** Of a send or a task, to ask for its outcome by. */
  requestId: string;
}

export interface NexusClient extends Methods, Streams {}

/**
 * A client. A request has a connection of its own, on which the server proves that
 * it has the key before the key is sent.
 */
export class NexusClient {
  /** Calls nobody yet. A URL of another machine without https is a TypeError, as are a timeout that is not above 0 and options that are no object or not known. */
  constructor(options?: Options);
  /** The agent that this client talks to; undefined for the server alone. */
  readonly agentId: string | undefined;
  /** A client like this one, of an agent. A name that no agent can have is a ClientError (INVALID_PARAMS). */
  agent(agentId: string): NexusClient;
  /** A client like this one, with another timeout. */
  withTimeout(timeout: number | null): NexusClient;
  /** Calls any method by its name. Parameters that are no object are a TypeError, as they are of every method. */
  call(method: string, params?: object, options?: CallOptions): Promise<unknown>;
  /** Asks whether the server can work: status and reasons say it, and that it cannot is no error. */
  readyz(options?: CallOptions): Promise<Readiness>;
  /**
   * Follows the agent's events. They go on where they were when a connection breaks,
   * also with a later server, and end with an event "end" when the agent is destroyed.
   */
  events(options?: EventsOptions<number>): AsyncGenerator<Event, void, undefined>;
  /** Follows the events of all agents, or of some, from the id of one on. */
  allEvents(options?: AllEventsOptions): AsyncGenerator<AnyEvent, void, undefined>;
}

/** Tells what listens there, without a key. */
export function detect(url?: string, ca?: string): Promise<"nexus_server" | "no_server" | "other_service" | "timeout">;
