"""The keeper of a child, and the prefork server.

Started by longshore-python as `python -c TEXT keep|serve`, with a Unix stream socket (the control) as descriptor 0.

A request on a socket: four bytes of length (network order), then JSON; its descriptors come with the first byte.
Texts of the system (arguments, environment, paths) are latin-1: one character for each byte.
A report on a socket: one line of JSON.

keep:  One request. The keeper starts the child, reports its pid and its end, and leaves no process of it running.
serve: Imports modules, then forks a keeper for each request; the keeper reports over the socket that came with it.

A keeper ends its child, and all that descends from it, when its socket is closed: by us, or by the death of us.
Orphans become children of the keeper (subreaper), so a process that left group and session is found, too.
Standard library only; Python 3.9 or later; Linux.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# An interpreter ends itself by SIGINT where nothing catches KeyboardInterrupt.
INTERRUPTED = -2
LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option, value):
    if LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl %d" % option)


def report(sock, **fields):
    """Sends one report. Nobody is left to read it when the socket is closed."""
    try:
        sock.sendall(json.dumps(fields).encode() + b"\n")
    except OSError:
        pass


def receive(sock, n_fds):
    """The next request and its descriptors; None at the end of the stream."""
    head, fds = b"", []
    while len(head) < 4:
        data, more, _, _ = socket.recv_fds(sock, 4 - len(head), n_fds)
        fds += more
        if not data:
            return None
        head += data
    for fd in fds:
        os.set_inheritable(fd, False)
    left, parts = struct.unpack(">I", head)[0], []
    while left:
        data = sock.recv(min(left, 65536))
        if not data:
            return None
        parts.append(data)
        left -= len(data)
    return json.loads(b"".join(parts)), fds


def octets(text):
    return text.encode("latin-1")


# ---- The child


def reset_signals(is_python):
    """The signals of a program that was just started; of an interpreter, where no other one is executed."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
    if is_python:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def become_child(spec, fds, gate, failure, close):
    """Runs in the child, and never returns."""
    step = "set up"
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        reset_signals("program" in spec)
        # The keeper says that we run before we do. Without that, it has died, and the start counts as none.
        if os.read(gate, 1) != b"g":
            os._exit(127)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        for fd in close:
            os.close(fd)
        step = "chdir"
        os.chdir(octets(spec["cwd"]))
        env = {octets(key): octets(value) for key, value in spec["env"]}
        if "argv" in spec:
            step = "exec"
            argv = [octets(arg) for arg in spec["argv"]]
            os.execvpe(argv[0], argv, env)
        os.environb.clear()
        os.environb.update(env)
    except BaseException as error:
        number = getattr(error, "errno", None) or 0
        text = json.dumps({"step": step, "errno": number, "text": str(error)})
        os.write(failure, text.encode())
        os._exit(127)
    os.close(failure)
    os._exit(run_program(spec["program"], [os.fsdecode(octets(arg)) for arg in spec["args"]]))


def run_program(program, args):
    """Runs code, a module or a script as a new interpreter would; returns the exit code."""
    import runpy
    import threading
    import types

    code = 0
    try:
        what = os.fsdecode(octets(program["text"]))
        if program["kind"] == "code":
            sys.argv = ["-c"] + args
            sys.path[0] = ""
            main = types.ModuleType("__main__")
            sys.modules["__main__"] = main
            exec(compile(what, "<string>", "exec"), main.__dict__)
        elif program["kind"] == "module":
            sys.argv = [what] + args
            sys.path[0] = os.getcwd()
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [what] + args
            sys.path[0] = os.path.dirname(os.path.abspath(what))
            runpy.run_path(what, run_name="__main__")
    except SystemExit as end:
        code = exit_code(end.code)
    except BaseException as error:
        # Without our own frame.
        error = error.with_traceback(error.__traceback__.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
        code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = code or 120
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


def exit_code(value):
    """What `sys.exit(value)` ends a process with."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


# ---- The keeper


def children():
    """The pids of our own children. Only we reap them: none of the numbers can be somebody else's."""
    me = os.getpid()
    try:
        with open("/proc/self/task/%d/children" % me) as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        pass
    found = []
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % name) as file:
                if int(file.read().rpartition(")")[2].split()[1]) == me:
                    found.append(int(name))
        except (OSError, ValueError, IndexError):
            pass
    return found


def send(pid, number, is_group):
    try:
        (os.killpg if is_group else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def end_rest():
    """Kills and reaps until no child is left: what an ended process leaves becomes our child. Returns how many."""
    count = 0
    while True:
        for pid in children():
            send(pid, signal.SIGKILL, False)
        try:
            os.waitpid(-1, 0)
            count += 1
        except ChildProcessError:
            return count


def has_ended(pid):
    """Whether the child has ended; it stays a zombie, so that the number of its group is not given away."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap_others(pid):
    """Reaps the orphans that ended while the child still runs."""
    for other in children():
        if other != pid:
            try:
                os.waitpid(other, os.WNOHANG)
            except ChildProcessError:
                pass


def watch(sock, pid, failure, wake):
    """Waits for the end of the child, and does what the socket says meanwhile. Returns why it did not start."""
    poll = select.poll()
    for fd in (sock.fileno(), failure, wake):
        poll.register(fd, select.POLLIN)
    why = b""
    while not has_ended(pid):
        for fd, _ in poll.poll():
            if fd == wake:
                os.read(wake, 4096)
                reap_others(pid)
            elif fd == failure:
                more = os.read(failure, 65536)
                why += more
                if not more:
                    poll.unregister(failure)
            else:
                command = sock.recv(1)
                if command == b"t":
                    send(pid, signal.SIGTERM, True)
                else:
                    # "k", or the end of the stream: of us.
                    send(pid, signal.SIGKILL, True)
                    if not command:
                        poll.unregister(fd)
    while True:
        more = os.read(failure, 65536)
        if not more:
            return why
        why += more


def keep(sock, spec, fds):
    """Starts one child, and watches it to its end."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gate, gate_end = os.pipe()
    failure, failure_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        # With this end open, the child would not see that the keeper has died.
        os.close(gate_end)
        close = fds + [sock.fileno(), wake, wake_end, gate, failure]
        become_child(spec, fds, gate, failure_end, close)
    for fd in fds + [gate, failure_end]:
        os.close(fd)
    try:
        os.setpgid(pid, pid)
    except OSError:
        pass
    report(sock, started=pid, keeper=os.getpid())
    try:
        os.write(gate_end, b"g")
    except BrokenPipeError:
        pass
    os.close(gate_end)
    why = watch(sock, pid, failure, wake)
    send(pid, signal.SIGKILL, True)
    _, status, usage = os.wait4(pid, 0)
    left = end_rest()
    end = {"code": os.WEXITSTATUS(status)} if os.WIFEXITED(status) else {"signal": os.WTERMSIG(status)}
    report(
        sock,
        ended=end,
        refused=json.loads(why) if why else None,
        cpu_us=int((usage.ru_utime + usage.ru_stime) * 1e6),
        max_rss_kib=usage.ru_maxrss,
        left=left,
    )


def kept(sock, spec, fds):
    """keep(), with a report where it fails itself. Never returns."""
    try:
        keep(sock, spec, fds)
    except BaseException:
        report(sock, broken=traceback.format_exc())
        end_rest()
    os._exit(0)


# ---- The prefork server


def n_threads():
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def import_all(control, names):
    """Imports the modules. The end of the socket ends us also while an import hangs: by SIGIO."""
    import importlib

    flags = fcntl.fcntl(control, fcntl.F_GETFL)
    fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control, fcntl.F_SETFL, flags | os.O_ASYNC)
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            report(control, refused="import", text=name)
            os._exit(1)
    fcntl.fcntl(control, fcntl.F_SETFL, flags)


def fork_keeper(control, request, fds):
    sock = socket.socket(fileno=fds[0])
    count = n_threads()
    if count != 1:
        report(sock, threads=count)
        sock.close()
        return
    try:
        pid = os.fork()
    except OSError as error:
        report(sock, broken="fork: %s" % error)
        pid = -1
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        # Else the end of the server would not be seen while one of its children runs.
        control.close()
        kept(sock, request, fds[1:])
    sock.close()


def serve(control):
    import gc

    spec, _ = receive(control, 0)
    import_all(control, spec["preload"])
    sys.stdout.flush()
    sys.stderr.flush()
    if n_threads() != 1:
        report(control, refused="threads", text=str(n_threads()))
        os._exit(1)
    gc.collect()
    gc.freeze()
    # The kernel reaps the keepers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    report(control, ready=os.getpid())
    while True:
        request = receive(control, 4)
        if request is None:
            os._exit(0)
        spec, fds = request
        if len(fds) == 4:
            fork_keeper(control, spec, fds)
            fds = fds[1:]
        for fd in fds:
            os.close(fd)


def close_others(kept_fd):
    """Closes what was inherited by mistake: a child holds nothing open for longer than its own three descriptors."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept_fd:
            try:
                os.close(int(name))
            except OSError:
                pass


def main():
    how = sys.argv[1]
    control = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    close_others(control.fileno())
    os.setsid()
    if how == "serve":
        serve(control)
    request = receive(control, 3)
    if request is not None:
        kept(control, request[0], request[1])


main()
