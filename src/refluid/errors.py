"""The exceptions and warnings that refluid raises.

Each derives from what Fluid users already catch, and keeps its fields, so that it can be inspected and pickled.
"""

from __future__ import annotations

from collections.abc import Sequence


class EnforceNotMet(RuntimeError):
    """Fluid's name for a failed check while a program runs."""


class EOFException(Exception):
    """A reader inside a program has no more data."""


class UnknownOpError(NotImplementedError, ValueError):
    """A program names an op type that refluid does not have."""

    def __init__(self, type: str, nearest: str | None = None, written_at: str | None = None):
        self.type, self.nearest, self.written_at = type, nearest, written_at
        lines = [f"{type}: refluid has no op of this type"]
        if written_at:
            lines.append(f"  written at  {written_at}")
        if nearest:
            lines.append(f"  hint        did you mean {nearest}?")
        super().__init__("\n".join(lines))

    def __reduce__(self):
        return type(self), (self.type, self.nearest, self.written_at)


class OpError(ValueError, EnforceNotMet):
    """An op does not accept these inputs or attributes. Raised while a program is built, compiled or run."""

    def __init__(
        self,
        op_type: str,
        problem: str,
        arguments: Sequence[str] = (),
        attrs: Sequence[str] = (),
        written_at: str | None = None,
        hint: str | None = None,
    ):
        self.op_type, self.problem = op_type, problem
        self.arguments, self.attrs = list(arguments), list(attrs)
        self.written_at, self.hint = written_at, hint
        lines = [f"{op_type}: {problem}"]
        lines += [f"  {line}" for line in (*self.arguments, *self.attrs)]
        if written_at:
            lines.append(f"  written at  {written_at}")
        if hint:
            lines.append(f"  hint        {hint}")
        super().__init__("\n".join(lines))

    def __reduce__(self):
        return type(self), (self.op_type, self.problem, self.arguments, self.attrs, self.written_at, self.hint)


class OutOfRangeError(OpError, IndexError):
    """An id or label is out of range for the table or the classes it indexes."""


class PythonCodeError(OpError):
    """An op calls Python code, so its program cannot be written as data."""


class FeedError(ValueError, EnforceNotMet):
    """A fed value does not match its variable, or a feed is missing."""

    def __init__(self, variable: str, problem: str, hint: str | None = None):
        self.variable, self.problem, self.hint = variable, problem, hint
        super().__init__(f"feed {variable}: {problem}" + (f"\n  hint        {hint}" if hint else ""))

    def __reduce__(self):
        return type(self), (self.variable, self.problem, self.hint)


class FetchError(ValueError, EnforceNotMet):
    """A fetch names a variable that the program does not define or compute."""

    def __init__(self, variable: str, problem: str, hint: str | None = None):
        self.variable, self.problem, self.hint = variable, problem, hint
        super().__init__(f"fetch {variable}: {problem}" + (f"\n  hint        {hint}" if hint else ""))

    def __reduce__(self):
        return type(self), (self.variable, self.problem, self.hint)


class MalformedLineError(ValueError):
    """A line of a data file does not hold what the variables of the dataset need."""

    def __init__(self, file: str, line: int, problem: str, text: str = ""):
        self.file, self.line, self.problem, self.text = file, line, problem, text
        super().__init__(
            f"{file}, line {line}: {problem}\n  the line    {text}\n"
            "  hint        each slot is written as its number of values and the values; "
            "FLAGS_dataset_skip_malformed_lines=1 skips such lines and counts them"
        )

    def __reduce__(self):
        return type(self), (self.file, self.line, self.problem, self.text)


class ColumnError(ValueError):
    """A column of a data file does not hold what its variable needs."""

    def __init__(self, file: str, column: str, problem: str):
        self.file, self.column, self.problem = file, column, problem
        super().__init__(f"{file}, column {column}: {problem}" if column else f"{file}: {problem}")

    def __reduce__(self):
        return type(self), (self.file, self.column, self.problem)


class PipeCommandError(RuntimeError):
    """The pipe command of a dataset failed."""

    def __init__(self, command: str, file: str, code: int, stderr: str = ""):
        self.command, self.file, self.code, self.stderr = command, file, code, stderr
        ended = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        shown = "".join(f"\n  stderr      {line}" for line in stderr.splitlines()) or "\n  stderr      is empty"
        super().__init__(f"the pipe command {ended}\n  command     {command}\n  file        {file}{shown}")

    def __reduce__(self):
        return type(self), (self.command, self.file, self.code, self.stderr)


class UninitializedError(EnforceNotMet):
    """A program reads a variable that has no value in the scope."""

    def __init__(self, variable: str, reader: str, hint: str | None = None):
        self.variable, self.reader, self.hint = variable, reader, hint
        text = f"variable {variable} has no value, but {reader} reads it"
        super().__init__(text + (f"\n  hint        {hint}" if hint else ""))

    def __reduce__(self):
        return type(self), (self.variable, self.reader, self.hint)


class PaddingWarning(UserWarning):
    """A program cannot be run with padded sequences, so every new total length compiles it again."""


class RecompileWarning(UserWarning):
    """A program was compiled again unexpectedly; the message names the reason."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged and is skipped in favour of an older one."""


class ServerBusyError(OSError):
    """A parameter server cannot listen on its endpoint."""

    def __init__(self, endpoint: str):
        self.endpoint = endpoint
        super().__init__(
            f"server {endpoint} cannot listen: the port is in use or the address does not belong to this machine; "
            "is another server of this job or of an earlier one still running?"
        )

    def __reduce__(self):
        return type(self), (self.endpoint,)


class SecurityError(ValueError):
    """The flags for tokens and certificates contradict each other, or their files cannot be used."""


class PlaintextError(RuntimeError):
    """Something would listen without TLS where others can reach it, and nobody has said that this is wanted."""

    def __init__(self, endpoint: str, tls_helps: bool = True):
        self.endpoint, self.tls_helps = endpoint, tls_helps
        remedy = "set FLAGS_rpc_tls_certificate, FLAGS_rpc_tls_key and FLAGS_rpc_tls_authority" if tls_helps else ""
        trusted = "on a network that you trust, set FLAGS_rpc_allow_plaintext=1 for every process"
        super().__init__(
            f"refusing to listen on {endpoint} in plaintext: whoever reaches this address could read and change the "
            f"model; {remedy + ', or, ' if remedy else ''}{trusted} (docs/guides/security.md)"
        )

    def __reduce__(self):
        return type(self), (self.endpoint, self.tls_helps)


class ServerError(RuntimeError):
    """A parameter server rejected a request or did not reply."""

    def __init__(self, trainer: int, step: int, endpoint: str, problem: str):
        self.trainer, self.step, self.endpoint, self.problem = trainer, step, endpoint, problem
        super().__init__(f"trainer {trainer}, step {step}, server {endpoint}: {problem}")

    def __reduce__(self):
        return type(self), (self.trainer, self.step, self.endpoint, self.problem)


class LostTrainerError(ValueError):
    """A job with parameter servers has failed because a trainer is lost."""

    def __init__(self, trainer: int, problem: str):
        self.trainer, self.problem = trainer, problem
        super().__init__(
            f"the job has failed: {problem}. FLAGS_rpc_lost_trainer says whether a lost trainer is waited for (wait), "
            "left out (leave_out), or ends the job (fail)"
        )

    def __reduce__(self):
        return type(self), (self.trainer, self.problem)


class ServersMissingError(TimeoutError):
    """Parameter servers did not start in time."""

    def __init__(self, trainer: int, missing: Sequence[str], seconds: float, reason: str):
        self.trainer, self.missing, self.seconds, self.reason = trainer, list(missing), seconds, reason
        super().__init__(
            f"trainer {trainer}: no reply from {', '.join(self.missing)} within {seconds:.0f} s ({reason}); "
            "do the servers listen on these endpoints?"
        )

    def __reduce__(self):
        return type(self), (self.trainer, self.missing, self.seconds, self.reason)


class PeerError(RuntimeError):
    """Another trainer of the job has failed or is gone."""

    def __init__(self, trainer: int, other: int, endpoint: str, problem: str):
        self.trainer, self.other, self.endpoint, self.problem = trainer, other, endpoint, problem
        super().__init__(f"trainer {trainer}: trainer {other} at {endpoint} {problem}")

    def __reduce__(self):
        return type(self), (self.trainer, self.other, self.endpoint, self.problem)


class RankError(RuntimeError):
    """A rank of a collective job has failed, is gone, or does something else than the others; ``rank`` says so."""

    def __init__(self, rank: int, other: int, endpoint: str, problem: str):
        self.rank, self.other, self.endpoint, self.problem = rank, other, endpoint, problem
        super().__init__(f"rank {other} at {endpoint} {problem}")

    def __reduce__(self):
        return type(self), (self.rank, self.other, self.endpoint, self.problem)


class TableTooLargeError(RuntimeError):
    """A trainer reads more of a table on servers than it may read at once."""

    def __init__(
        self, table: str, dtype: str, shape: Sequence[int], rows: int, size: int, limit: float, held: Sequence[str]
    ):
        self.table, self.dtype, self.shape, self.rows = table, dtype, tuple(shape), rows
        self.size, self.limit, self.held = size, limit, list(held)
        amount = f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size:,} bytes"
        wanted = "it" if rows == self.shape[0] else f"{rows} rows of it"
        super().__init__(
            f"table {table} is too large to read {wanted} at once: {amount}; the limit is {limit:g} GiB\n"
            f"  table       {dtype}{list(self.shape)}\n"
            f"  lives on    {', '.join(self.held)}\n"
            "  hint        read rows of it: fluid.global_scope().find_var(name).get_tensor()[ids], or [first:last]; "
            "write it to a file: fluid.io.save_persistables, fleet.save_persistables; "
            "or raise FLAGS_max_remote_read_gb"
        )

    def __reduce__(self):
        return type(self), (self.table, self.dtype, self.shape, self.rows, self.size, self.limit, self.held)
