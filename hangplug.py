import time


def check(login, passcode, address):
    time.sleep(1000 if login.startswith("hang") else 0)
